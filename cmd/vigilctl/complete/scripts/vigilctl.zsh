#compdef vigilctl
compdef _vigilctl vigilctl

# Completion of vigilctl for zsh.
#
# Nothing here evaluates text, neither what is typed nor what vigilctl offers. vigilctl offers only words without characters that are
# special in a shell.

_vigilctl() {
	local -a typed lines offered shown options match mbegin mend
	local program=${(Q)words[1]} word line about directive flag= described= MATCH MBEGIN MEND
	for word in "${(@)words[2,CURRENT-1]}"; do
		# A variable, also as the value of a flag; nothing else is substituted.
		if [[ $word =~ '^(-[-a-z]*=)?"?[$][{]?([a-zA-Z_][a-zA-Z0-9_]*)[}]?"?$' ]]; then
			typed+=("$match[1]${(P)match[2]}")
		else
			typed+=("${(Q)word}")
		fi
	done
	if [[ $program == '~/'* ]]; then program=$HOME${program#'~'}; fi
	if [[ $program != */* ]]; then program=vigilctl; fi
	lines=("${(@f)$(command $program __complete "${(@)typed}" "${(Q)PREFIX}" 2>/dev/null)}")
	directive=${lines[-1]#:}
	if [[ $directive != <-> ]]; then return 1; fi
	if [[ $PREFIX == -*=* ]]; then compset -P 1 '*='; fi
	for line in "${(@)lines[1,-2]}"; do
		word=${line%%$'\t'*}
		if [[ -z $word ]]; then continue; fi
		about=
		if [[ $line == *$'\t'* ]]; then about=${line#*$'\t'} described=1; fi
		offered+=("$word") shown+=("$word${about:+  -- $about}")
	done
	if (( ${#offered} == 0 )); then
		if (( directive & 4 )); then return 1; fi
		_files
		return
	fi
	if (( directive & 2 )); then options+=(-S ''); fi
	if [[ -n $described ]]; then options+=(-l); fi
	compadd "${(@)options}" -d shown -a offered
}

# Sourced, the script only defines the function; as a file in fpath it is the function.
if [ "$funcstack[1]" = "_vigilctl" ]; then
	_vigilctl
fi
