# Completion of vigilctl for bash.
#
# Nothing here evaluates text, neither what is typed nor what vigilctl offers. vigilctl offers only words without characters that are
# special in a shell.

# __vigilctl_words sets words to the words of a line as bash would pass them. It fails if they depend on anything but variables.
__vigilctl_words() {
	local line=$1 word= inside= quote= c name
	words=()
	while [[ -n $line ]]; do
		c=${line:0:1} line=${line:1}
		case $quote$c in
		"''" | '""') quote= ;;
		"'"*) word+=$c ;;
		\' | \") quote=$c inside=1 ;;
		'"\')
			case $line in
			['$`"\']*) word+=${line:0:1} line=${line:1} ;;
			*) word+=$c ;;
			esac
			;;
		\\) word+=${line:0:1} line=${line:1} inside=1 ;;
		'$' | '"$')
			name=
			if [[ $line =~ ^[a-zA-Z_][a-zA-Z0-9_]* ]]; then
				name=${BASH_REMATCH[0]} line=${line:${#BASH_REMATCH[0]}}
			elif [[ $line =~ ^\{([a-zA-Z_][a-zA-Z0-9_]*)\} ]]; then
				name=${BASH_REMATCH[1]} line=${line:${#BASH_REMATCH[0]}}
			else
				return 1
			fi
			word+=${!name-} inside=1
			;;
		'`' | '"`' | [\;\|\&\<\>\(\)] | $'\n') return 1 ;;
		' ' | $'\t')
			if [[ -n $inside ]]; then words+=("$word"); fi
			word= inside=
			;;
		\~)
			if [[ -z $inside && $line == /* ]]; then word=$HOME; else word+=$c; fi
			inside=1
			;;
		*) word+=$c inside=1 ;;
		esac
		if [[ -n $quote ]]; then inside=1; fi
	done
	words+=("$word")
}

_vigilctl() {
	local IFS=$' \t\n' tab=$'\t' words current program out directive line word about before flag= longest=0 i
	local -a offered=() abouts=()
	COMPREPLY=()
	__vigilctl_words "${COMP_LINE:0:COMP_POINT}" || return 0
	while [[ ${words[0]} =~ ^[a-zA-Z_][a-zA-Z0-9_]*= ]]; do words=("${words[@]:1}"); done
	if ((${#words[@]} < 2)); then return 0; fi
	current=${words[${#words[@]} - 1]}
	program=${words[0]}
	if [[ $program != */* ]]; then program=vigilctl; fi
	out=$(command "$program" __complete "${words[@]:1}" 2>/dev/null)
	directive=${out##*:}
	case $directive in '' | *[!0-9]*) return 0 ;; esac

	# bash replaces only what follows the last of COMP_WORDBREAKS, which is $2.
	if [[ $current == -*=* ]]; then flag=${current%%=*}=; fi
	if [[ $current != *"$2" ]]; then return 0; fi
	before=${current%"$2"}
	while IFS= read -r line; do
		word=$flag${line%%"$tab"*}
		if [[ -z $line || $line == :* || $word != "$current"* ]]; then continue; fi
		about=
		if [[ $line == *"$tab"* ]]; then about=${line#*"$tab"}; fi
		word=${word#"$before"}
		offered+=("$word") abouts+=("$about")
		if ((${#word} > longest)); then longest=${#word}; fi
	done <<<"$out"

	if type compopt >/dev/null 2>&1; then
		if ((directive & 2)); then compopt -o nospace; fi
		if ((directive & 4)); then compopt +o default; fi
	fi
	for ((i = 0; i < ${#offered[@]}; i++)); do
		word=${offered[i]} about=${abouts[i]}
		# Descriptions only in a list.
		if [[ -n $about && ${#offered[@]} -gt 1 && ($COMP_TYPE == 63 || $COMP_TYPE == 33) ]]; then
			printf -v word '%-*s  (%s)' "$longest" "$word" "$about"
			word=${word:0:${COLUMNS:-80} - 1}
		fi
		COMPREPLY+=("$word")
	done
}

complete -o default -F _vigilctl vigilctl
