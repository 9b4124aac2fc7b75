# bash completion for zeroute. Commands, options, settings and presets come from the command itself.
_zeroute_words()
{
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_zeroute()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} tool=${COMP_WORDS[0]}
    local command=${COMP_WORDS[1]} i values
    # "--option=value" is split at the = by bash
    if [[ $cur == "=" ]]; then cur=; elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _zeroute_words "$("$tool" --list commands 2>/dev/null | cut -f1) --help --version"
        return
    fi
    # Behind -- the rest belongs to the program.
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
            fi
            return
        fi
    done
    case $prev in
    --preset)
        _zeroute_words "$("$tool" --list presets 2>/dev/null | cut -f1)"
        return ;;
    --*)
        # The values of a setting, those in capitals are for the user to fill in.
        values=$("$tool" --list settings 2>/dev/null | awk -F'\t' -v k="$prev" '{ n = "--" $1; gsub("_", "-", n) }
            n == k { print $2 }' | tr '|' '\n' | grep -v '[A-Z]')
        if [[ -n $values ]]; then
            _zeroute_words "$values"
            return
        fi ;;
    esac
    if [[ $cur == -* ]]; then
        _zeroute_words "$("$tool" "$command" --list-options 2>/dev/null | cut -f1)"
        return
    fi
    case $command in
    run) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
    stat | doctor | ctl | pause | resume)
        _zeroute_words "$("$tool" stat --json 2>/dev/null | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p')" ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    esac
}
complete -F _zeroute zeroute
