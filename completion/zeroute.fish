# fish completion for zeroute. Commands, options, settings and presets come from the command itself.
function __zeroute_first
    test (count (commandline -opc)) -eq 1
end

# The command that was typed, unless the rest belongs to a program behind --.
function __zeroute_command
    set -l words (commandline -opc)
    test (count $words) -ge 2; and not contains -- -- $words; and echo $words[2]
end

function __zeroute_options
    set -l command (__zeroute_command)
    test -n "$command"; or return
    zeroute $command --list-options 2>/dev/null | while read -d \t -l name argument help
        printf '%s\t%s\n' $name $help
    end
end

# The values of the setting that was typed last; those in capitals are for the user to fill in.
function __zeroute_values
    set -l last (commandline -opc)[-1]
    if test "$last" = --preset
        zeroute --list presets 2>/dev/null | cut -f1,3
        return
    end
    zeroute --list settings 2>/dev/null | awk -F'\t' -v k=$last '{ n = "--" $1; gsub("_", "-", n) } n == k { print $2 }' |
        string split '|' | string match -rv '[A-Z]'
end

complete -c zeroute -f
complete -c zeroute -n __zeroute_first -a '(zeroute --list commands 2>/dev/null)'
complete -c zeroute -n __zeroute_first -l help -d 'show help'
complete -c zeroute -n __zeroute_first -l version -d 'show the version'
complete -c zeroute -n 'test -n (__zeroute_command)' -a '(__zeroute_values)'
complete -c zeroute -n 'string match -q -- "-*" (commandline -ct); and test -n (__zeroute_command)' -a '(__zeroute_options)'
complete -c zeroute -n 'contains -- -- (commandline -opc)' -a '(__fish_complete_subcommand)'
complete -c zeroute -n 'test -n (__zeroute_command)' -F
