# Completion of vigilctl for fish.
#
# Nothing here evaluates text, neither what is typed nor what vigilctl offers. vigilctl offers only words without characters that are
# special in a shell.

# __vigilctl_ask sets __vigilctl_offered. It fails where names of files are to be completed.
function __vigilctl_ask
    set -g __vigilctl_offered
    set -l typed (commandline -opc)
    while string match -qr '^[a-zA-Z_][a-zA-Z0-9_]*=' -- "$typed[1]"
        set -e typed[1]
    end
    set -l program "$typed[1]"
    string match -q '*/*' -- $program; or set program vigilctl
    set -l words
    for word in $typed[2..]
        # A variable, also as the value of a flag; nothing else is substituted.
        set -l parts (string match -r -- '^((?:-[-a-z]*=)?)[$]([a-zA-Z_][a-zA-Z0-9_]*)$' $word)
        if test (count $parts) -eq 3; and set -q $parts[3]
            set -l value $$parts[3]
            set -a words "$parts[2]$value"
        else
            set -a words $word
        end
    end
    set -l current (string unescape -- (commandline -ct))
    set -l lines (command $program __complete $words "$current[1]" 2>/dev/null)
    set -l directive (string match -r -- '^:([0-9]+)$' "$lines[-1]")[2]
    test -n "$directive"; or return 1
    set -l flag (string match -r -- '^-[^=]*=' "$current[1]")
    for line in $lines[1..-2]
        test -n "$line"; and set -a __vigilctl_offered "$flag$line"
    end
    test (count $__vigilctl_offered) -gt 0; or test (math "bitand($directive, 4)") -ne 0
end

complete -c vigilctl -e
complete -c vigilctl -n __vigilctl_ask -f -a '$__vigilctl_offered'
