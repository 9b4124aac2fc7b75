# $CONDA_PREFIX/etc/conda/deactivate.d/zeroute.sh
if [ -n "${_ZEROUTE_OLD_PRELOAD+set}" ]; then
    export LD_PRELOAD="$_ZEROUTE_OLD_PRELOAD"
    [ -n "$LD_PRELOAD" ] || unset LD_PRELOAD
    unset _ZEROUTE_OLD_PRELOAD
fi
