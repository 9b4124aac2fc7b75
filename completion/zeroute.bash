# bash completion for zeroute. Commands, settings and presets come from the command itself.
_zeroute()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} tool=${COMP_WORDS[0]}
    local command=${COMP_WORDS[1]} i setting words
    # "--setting=value" is split at the = by bash
    if [[ $cur == "=" ]]; then cur=; elif [[ $prev == "=" ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words=$("$tool" --list commands 2>/dev/null | cut -f1)
        mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$cur")
        return
    fi
    # Behind -- or the first word that is no option, the rest belongs to the program.
    if [[ $command == run || $command == ab ]]; then
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
    fi
    case $command in
    run)
        case $prev in
        --preset)
            mapfile -t COMPREPLY < <(compgen -W "$("$tool" --list presets 2>/dev/null | cut -f1)" -- "$cur")
            return ;;
        --json)
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return ;;
        --*)
            setting=${prev#--}
            i=$("$tool" --list settings 2>/dev/null | awk -F'\t' -v k="${setting//-/_}" '$1 == k { print $2 }')
            if [[ -n $i ]]; then
                mapfile -t COMPREPLY < <(compgen -W "$(tr '|' '\n' <<<"$i" | grep -v '[A-Z]')" -- "$cur")
                return
            fi ;;
        esac
        if [[ $cur == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "--preset --sim --summary --no-summary --json --discard --help -- \
                $("$tool" --list settings 2>/dev/null | cut -f1 | sed 's/_/-/g; s/^/--/')" -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        fi ;;
    stat)
        if [[ $cur == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "--all --fields --json --prometheus --watch --help" -- "$cur")
        else
            words=$("$tool" stat --json 2>/dev/null | sed -n 's/^ *"pid": \([0-9]*\),$/\1/p')
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        fi ;;
    gc)
        mapfile -t COMPREPLY < <(compgen -W "--all-users --dry-run --json --help" -- "$cur") ;;
    *)
        # Any other command: the options that its own help names, and files.
        if [[ $cur == -* ]]; then
            words=$("$tool" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u)
            mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi ;;
    esac
}
complete -F _zeroute zeroute
