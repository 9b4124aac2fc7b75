# $CONDA_PREFIX/etc/conda/activate.d/zeroute.sh
_zeroute_library=$(python -c 'import zeroute; print(zeroute.preload_path())' 2>/dev/null) || _zeroute_library=
if [ -n "$_zeroute_library" ]; then
    export _ZEROUTE_OLD_PRELOAD="${LD_PRELOAD:-}"
    export LD_PRELOAD="$_zeroute_library${LD_PRELOAD:+:$LD_PRELOAD}"
fi
unset _zeroute_library
