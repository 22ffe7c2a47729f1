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

// option is a flag, with etcd's name. set changes and get reads the field to which the flag is
// bound.
type option struct {
	name string
	// value is the placeholder of the value in --help, and help the description.
	value, help string
	// shown is the default in --help if it is not the result of get, for instance because it
	// depends on other flags.
	shown string
	// noEffect is the reason why the flag has no effect. Such a flag is accepted so that command
	// lines written for etcd work.
	noEffect string
	isBool   bool
	isNumber bool // a whole number, which the log shows as a number
	// nanoseconds is set if a plain number in a configuration file counts nanoseconds.
	nanoseconds bool
	// secret hides the value in all output.
	secret bool
	// joins is set if several values of a flag join to one list.
	joins bool

	set func(string) error
	get func() string

	origin origin
}

// origin tells where the value of an option comes from.
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

// variable is the environment variable of a flag. --version has none: container images set
// ETCD_VERSION to their version.
func (o *option) variable() string {
	if o.name == "version" {
		return ""
	}
	return "ETCD_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
}

// bind makes an option for a field. parse checks and converts a value, show is its inverse.
func bind[T any](p *T, name, value, help string, parse func(string) (T, error),
	show func(T) string) *option {
	return &option{name: name, value: value, help: help,
		set: func(s string) error {
			v, err := parse(s)
			if err == nil {
				*p = v
			}
			return err
		},
		get: func() string { return show(*p) }}
}

// text serves as both parse and show of a string.
func text(s string) string { return s }

func str(p *string, name, value, help string) *option {
	return bind(p, name, value, help, func(s string) (string, error) { return s, nil }, text)
}

// orPreset makes an empty value mean the default.
func orPreset(preset string, o *option) *option {
	set := o.set
	o.set = func(s string) error {
		if s == "" {
			s = preset
		}
		return set(s)
	}
	return o
}

// file is a str that names a file or a directory.
func file(p *string, name, help string) *option { return str(p, name, "FILE", help) }

// oneOf is a str with a list of known values.
func oneOf(p *string, name, help string, known ...string) *option {
	value := strings.ToUpper(name[strings.LastIndexByte(name, '-')+1:])
	return bind(p, name, value, help, func(s string) (string, error) {
		if !slices.Contains(known, s) {
			return "", fmt.Errorf("want %s", alternatives(known))
		}
		return s, nil
	}, text)
}

// alternatives joins words to a phrase.
func alternatives(words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func list(p *[]string, name, value, help string) *option {
	return bind(p, name, value, help, func(s string) ([]string, error) { return splitList(s), nil },
		func(v []string) string { return strings.Join(v, ",") })
}

func urls(p *[]string, name, help string) *option { return list(p, name, "URL,...", help) }

// nonEmpty makes an option reject an empty value.
func nonEmpty(o *option) *option {
	set := o.set
	o.set = func(s string) error {
		if strings.Trim(s, ", ") == "" {
			return errors.New("must not be empty")
		}
		return set(s)
	}
	return o
}

// showDefault sets the default that --help shows.
func showDefault(shown string, o *option) *option {
	o.shown = shown
	return o
}

func boolean(p *bool, name, help string) *option {
	o := bind(p, name, "", help, parseBool, strconv.FormatBool)
	o.isBool = true
	return o
}

// inverted is a flag whose value is the opposite of the field.
func inverted(p *bool, name, help string) *option {
	o := bind(p, name, "", help, func(s string) (bool, error) {
		v, err := parseBool(s)
		return !v, err
	}, func(v bool) string { return strconv.FormatBool(!v) })
	o.isBool = true
	return o
}

func parseBool(s string) (bool, error) {
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, errors.New("want true or false")
	}
	return v, nil
}

// duration is a duration above 0.
func duration(p *time.Duration, name, help string) *option {
	return durationFrom(p, name, help, 1, "want a duration above 0 such as 5s or 1m30s")
}

// durationOrDefault is a duration. 0 and less mean the default.
func durationOrDefault(p *time.Duration, name, help string) *option {
	o := durationFrom(p, name, help, anyDuration,
		"want a duration such as 5s or 1m30s, or 0 for the default")
	set := o.set
	o.set = func(s string) error {
		err := set(s)
		*p = max(*p, 0)
		return err
	}
	return o
}

// durationOrNever is a duration. 0 means never; less than 0 means never too, unless least is 0. The
// field is negative for never.
func durationOrNever(least time.Duration, p *time.Duration, name, help string) *option {
	o := durationFrom(p, name, help, least, "want a duration such as 5s or 1m30s, or 0")
	set, get := o.set, o.get
	o.set = func(s string) error {
		err := set(s)
		if err == nil && *p <= 0 {
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

// anyDuration is the smallest duration.
const anyDuration = time.Duration(math.MinInt64)

func durationFrom(p *time.Duration, name, help string, least time.Duration, want string) *option {
	o := bind(p, name, "DURATION", help, func(s string) (time.Duration, error) {
		v, err := time.ParseDuration(s)
		if err != nil || v < least {
			return 0, errors.New(want)
		}
		return v, nil
	}, time.Duration.String)
	o.nanoseconds = true
	return o
}

// wholeUnits is a duration whose flag is a whole number of units.
func wholeUnits(unit time.Duration, p *time.Duration, name, value, help string, least,
	most uint64) *option {
	o := bind(p, name, value, help, func(s string) (time.Duration, error) {
		v, err := strconv.ParseUint(s, 0, 64)
		if err != nil || v < least || v > most {
			return 0, fmt.Errorf("want a whole number of %s from %d to %d",
				unitNames[unit], least, most)
		}
		return time.Duration(v) * unit, nil
	}, func(d time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) })
	o.isNumber = true
	return o
}

const year = 365 * 24 * time.Hour

var unitNames = map[time.Duration]string{time.Millisecond: "milliseconds",
	time.Second: "seconds", year: "years"}

// number is a whole number from 1.
func number[T int | int64 | uint32 | uint64](p *T, name, help string) *option {
	return numberFrom(1, p, name, help)
}

func numberFrom[T int | int64 | uint32 | uint64](least uint64, p *T, name, help string) *option {
	most := uint64(math.MaxInt64)
	switch any(*p).(type) {
	case uint32:
		most = math.MaxUint32
	case uint64:
		most = math.MaxUint64
	}
	o := bind(p, name, "N", help, func(s string) (T, error) {
		v, err := strconv.ParseUint(s, 0, 64)
		if err != nil || v < least || v > most {
			return 0, fmt.Errorf("want a whole number from %d to %d", least, most)
		}
		return T(v), nil
	}, func(v T) string { return fmt.Sprint(v) })
	o.isNumber = true
	return o
}

// signed is a whole number that may be negative.
func signed[T int | int64](p *T, name, value, help string) *option {
	o := bind(p, name, value, help, func(s string) (T, error) {
		v, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			return 0, errors.New("want a whole number")
		}
		return T(v), nil
	}, func(v T) string { return strconv.FormatInt(int64(v), 10) })
	o.isNumber = true
	return o
}

// unused is a flag without effect. Its value is checked as in etcd, and shown.
func unused(kind, name, preset, reason string) *option {
	var o *option
	switch kind {
	case "duration":
		o = durationFrom(new(time.Duration), name, "", anyDuration,
			"want a duration such as 5s or 1m30s")
	case "number":
		o = numberFrom(0, new(uint64), name, "")
	case "signed":
		o = signed(new(int64), name, "N", "")
	default:
		o = str(new(string), name, kind, "")
	}
	check, value := o.set, preset
	o.noEffect = reason
	o.get = func() string { return value }
	o.set = func(s string) error {
		err := check(s)
		if err == nil {
			value = s
		}
		return err
	}
	return o
}

// splitList returns the parts of a comma-separated list without duplicates.
func splitList(s string) []string {
	var list []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(list, part) {
			list = append(list, part)
		}
	}
	return list
}
