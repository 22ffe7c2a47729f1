package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// option is one flag, by etcd's name. It is bound to a field, which set changes and get reads.
type option struct {
	name string
	// value stands for the value in --help, and help says what it does.
	value, help string
	// shown is the default in --help if get does not tell, such as one that depends on other flags.
	shown string
	// noEffect is why the flag changes nothing: it is taken so that command lines written for etcd work.
	noEffect string
	isBool   bool
	isNumber bool // a whole number: the log gives it as one
	// nanoseconds is set if a bare number in a configuration file is one of nanoseconds.
	nanoseconds bool
	// secret hides the value wherever values are shown.
	secret bool
	// joins is set if the values of a flag that is given several times are one list.
	joins bool

	set func(string) error
	get func() string

	origin origin
}

// origin is where the value of an option comes from.
type origin struct {
	kind  string // "default", "file", "environment" or "flag"
	where string // FILE:LINE, or the variable
}

// String implements fmt.Stringer.
func (o origin) String() string {
	switch o.kind {
	case "":
		return "default"
	case "flag":
		return "flag"
	}
	return o.kind + " " + o.where
}

// variable is the environment variable of a flag. --version has none: images set ETCD_VERSION to tell what
// they contain.
func (o *option) variable() string {
	if o.name == "version" {
		return ""
	}
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

func str(p *string, name, value, help string) *option {
	return &option{name: name, value: value, help: help,
		set: func(s string) error { *p = s; return nil },
		get: func() string { return *p }}
}

// file is a str that names a file or directory.
func file(p *string, name, help string) *option { return str(p, name, "FILE", help) }

// oneOf is a str of which only some values are known.
func oneOf(p *string, name, help string, known ...string) *option {
	o := str(p, name, strings.ToUpper(name[strings.LastIndexByte(name, '-')+1:]), help)
	o.set = func(s string) error {
		if !slices.Contains(known, s) {
			return fmt.Errorf("want %s", alternatives(known))
		}
		*p = s
		return nil
	}
	return o
}

// alternatives are words as a sentence has them.
func alternatives(words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func list(p *[]string, name, value, help string) *option {
	return &option{name: name, value: value, help: help,
		set: func(s string) error { *p = splitList(s); return nil },
		get: func() string { return strings.Join(*p, ",") }}
}

func urls(p *[]string, name, help string) *option { return list(p, name, "URL,...", help) }

// needed makes an option refuse an empty value.
func needed(o *option) *option {
	set := o.set
	o.set = func(s string) error {
		if strings.Trim(s, ", ") == "" {
			return errors.New("must not be empty")
		}
		return set(s)
	}
	return o
}

// by says what an option has by default.
func by(shown string, o *option) *option {
	o.shown = shown
	return o
}

func boolean(p *bool, name, help string) *option {
	return &option{name: name, help: help, isBool: true,
		set: func(s string) (err error) { *p, err = parseBool(s); return err },
		get: func() string { return strconv.FormatBool(*p) }}
}

// not is a flag that is on by default: p is set when it is off.
func not(p *bool, name, help string) *option {
	return &option{name: name, help: help, isBool: true,
		set: func(s string) error {
			v, err := parseBool(s)
			*p = !v
			return err
		},
		get: func() string { return strconv.FormatBool(!*p) }}
}

func parseBool(s string) (bool, error) {
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, errors.New("want true or false")
	}
	return v, nil
}

// duration is one above 0.
func duration(p *time.Duration, name, help string) *option {
	return durationFrom(p, name, help, 1, "want a duration above 0 such as 5s or 1m30s")
}

// orDefault is a duration of which 0 is the default.
func orDefault(p *time.Duration, name, help string) *option {
	return durationFrom(p, name, help, 0, "want a duration such as 5s or 1m30s, or 0 for the default")
}

// orNever is a duration of which 0 means never, which the field says with a negative one.
func orNever(p *time.Duration, name, help string) *option {
	o := durationFrom(p, name, help, 0, "want a duration such as 5s or 1m30s, or 0")
	set, get := o.set, o.get
	o.set = func(s string) error {
		err := set(s)
		if err == nil && *p == 0 {
			*p = -1
		}
		return err
	}
	o.get = func() string {
		if *p < 0 {
			return "0s"
		}
		return get()
	}
	return o
}

func durationFrom(p *time.Duration, name, help string, least time.Duration, want string) *option {
	return &option{name: name, value: "DURATION", help: help, nanoseconds: true,
		set: func(s string) error {
			v, err := time.ParseDuration(s)
			if err != nil || v < least {
				return errors.New(want)
			}
			*p = v
			return nil
		},
		get: func() string { return p.String() }}
}

// in is a duration that the flag gives as a whole number of units.
func in(unit time.Duration, p *time.Duration, name, value, help string, most uint64) *option {
	return &option{name: name, value: value, help: help, isNumber: true,
		set: func(s string) error {
			v, err := strconv.ParseUint(s, 0, 64)
			if err != nil || v == 0 || v > most {
				return fmt.Errorf("want a whole number of %s from 1 to %d", unitNames[unit], most)
			}
			*p = time.Duration(v) * unit
			return nil
		},
		get: func() string { return strconv.FormatInt(int64(*p/unit), 10) }}
}

const year = 365 * 24 * time.Hour

var unitNames = map[time.Duration]string{time.Millisecond: "milliseconds", time.Second: "seconds", year: "years"}

func number[T int | int64 | uint32 | uint64](p *T, name, help string) *option {
	return numberFrom(1, p, name, help)
}

func numberFrom[T int | int64 | uint32 | uint64](least uint64, p *T, name, help string) *option {
	most := uint64(math.MaxInt64)
	if _, small := any(*p).(uint32); small {
		most = math.MaxUint32
	}
	return &option{name: name, value: "N", help: help, isNumber: true,
		set: func(s string) error {
			v, err := strconv.ParseUint(s, 0, 64)
			if err != nil || v < least || v > most {
				return fmt.Errorf("want a whole number from %d to %d", least, most)
			}
			*p = T(v)
			return nil
		},
		get: func() string { return fmt.Sprint(*p) }}
}

// signed is a whole number that may be negative.
func signed(p *int64, name, value, help string) *option {
	return &option{name: name, value: value, help: help, isNumber: true,
		set: func(s string) error {
			v, err := strconv.ParseInt(s, 0, 64)
			if err != nil {
				return errors.New("want a whole number")
			}
			*p = v
			return nil
		},
		get: func() string { return fmt.Sprint(*p) }}
}

// unused is a flag that changes nothing. Its value has to be right, and is shown.
func unused(kind, name, dflt, why string) *option {
	v := dflt
	o := &option{name: name, noEffect: why, get: func() string { return v }}
	var check func(string) error
	switch kind {
	case "bool":
		o.isBool = true
		check = func(s string) error { _, err := parseBool(s); return err }
	case "duration":
		var d time.Duration
		o.value, o.nanoseconds = "DURATION", true
		check = durationFrom(&d, name, "", 0, "want a duration such as 5s or 1m30s").set
	case "number":
		var n uint64
		o.value, o.isNumber = "N", true
		check = numberFrom(0, &n, name, "").set
	default:
		o.value = kind
		check = func(string) error { return nil }
	}
	o.set = func(s string) error {
		if err := check(s); err != nil {
			return err
		}
		v = s
		return nil
	}
	return o
}

func splitList(s string) []string {
	var list []string
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(list, part) {
			list = append(list, part)
		}
	}
	return list
}
