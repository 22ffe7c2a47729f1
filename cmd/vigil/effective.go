package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// masked replaces a secret value.
const masked = "(hidden)"

// setting is one line of the effective configuration.
type setting struct {
	Flag   string `json:"flag"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	// NoEffect is the reason if the flag has no effect.
	NoEffect string `json:"noEffect,omitempty"`
}

// effective lists the effective configuration in the order of --help.
func (o *options) effective() []setting {
	var all []setting
	o.each(func(opt *option) {
		if opt.name == "version" {
			return
		}
		all = append(all, setting{opt.name, opt.visible(), opt.origin.String(), opt.noEffect})
	})
	return all
}

// attrs returns the effective configuration as one group of a log line.
func (o *options) attrs() slog.Attr {
	var attrs []any
	o.each(func(opt *option) {
		if opt.name != "version" {
			attrs = append(attrs, slog.Any(opt.name, opt.typed()))
		}
	})
	return slog.Group("configuration", attrs...)
}

// visible returns the value, masked if it is secret.
func (o *option) visible() string { return o.show(o.get()) }

// show returns the part of a value that may be shown.
func (o *option) show(value string) string {
	if o.secret && value != "" {
		return masked
	}
	return users.ReplaceAllString(value, "://"+masked+"@")
}

// users matches users and passwords in URLs.
var users = regexp.MustCompile(`://[^/?#,\s]*@`)

// withoutUsers makes an option reject a URL with a user.
func withoutUsers(o *option, instead string) *option {
	set := o.set
	o.set = func(s string) error {
		if users.MatchString(s) {
			return errors.New("a user or a password does not belong into the URL: " + instead)
		}
		return set(s)
	}
	return o
}

// typed returns the value for the log. Booleans and whole numbers keep their types, other values
// become text.
func (o *option) typed() any {
	value := o.visible()
	if o.isBool {
		if v, err := strconv.ParseBool(value); err == nil {
			return v
		}
	}
	if o.isNumber {
		if v, err := strconv.ParseInt(value, 0, 64); err == nil {
			return v
		}
		if v, err := strconv.ParseUint(value, 0, 64); err == nil {
			return v
		}
	}
	return value
}

// logConfiguration logs all settings without effect. At the debug level it also logs the effective
// configuration, which vigil config prints too.
func (o *options) logConfiguration(log *slog.Logger) {
	log.Debug("effective configuration", o.attrs())
	o.each(func(opt *option) {
		if opt.noEffect != "" && opt.origin.kind != "" {
			log.Info("flag has no effect", "flag", opt.name, "from", opt.origin.String(),
				"reason", opt.noEffect)
		}
	})
	for name := range o.gates {
		if why := knownGates[name]; why != "" {
			log.Info("feature gate has no effect", "feature-gate", name, "reason", why)
		}
	}
	for _, name := range o.goneFlags {
		log.Warn("flag is no longer supported and has no effect", "flag", name)
	}
	for _, key := range o.unusedKeys {
		log.Warn("key of the configuration file has no effect", "key", key)
	}
	for _, v := range o.unknownVars {
		attrs := []any{"variable", v.name}
		if v.meant != "" {
			attrs = append(attrs, "did-you-mean", v.meant)
		}
		log.Warn("environment variable has no flag and no effect", attrs...)
	}
}

// splitFormat separates -w or --write-out from the arguments of vigil config.
func splitFormat(args []string) (format string, rest []string, err error) {
	format = "simple"
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		if name != "-w" && name != "--write-out" && name != "-write-out" {
			rest = append(rest, args[i])
			continue
		}
		if !has {
			if i++; i == len(args) {
				return "", nil, fmt.Errorf("flag %s needs an argument: simple, yaml or json", name)
			}
			value = args[i]
		}
		format = value
	}
	if format != "simple" && format != "yaml" && format != "json" {
		return "", nil, fmt.Errorf("-w=%q: want simple, yaml or json", format)
	}
	return format, rest, nil
}

// printEffective writes the effective configuration.
func (o *options) printEffective(w io.Writer, format string) error {
	all := o.effective()
	switch format {
	case "yaml":
		return o.writeYAML(w)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FLAG\tVALUE\tFROM")
	for _, s := range all {
		from := s.Origin
		if s.NoEffect != "" && s.Origin != "default" {
			from += " (no effect: " + s.NoEffect + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Flag, escape(s.Value), escape(from))
	}
	return t.Flush()
}

// writeYAML writes the effective configuration as a configuration file. Each value that is not a
// default has its origin in a comment, and each secret is only a comment.
func (o *options) writeYAML(w io.Writer) error {
	var err error
	o.each(func(opt *option) {
		if opt.name == "version" || opt.name == "config-file" || opt.noEffect != "" || err != nil {
			return
		}
		var line strings.Builder
		if opt.visible() != opt.get() {
			line.WriteString("# ")
		}
		line.WriteString(opt.name + ": ")
		value := json.NewEncoder(&line) // JSON is YAML
		value.SetEscapeHTML(false)
		if err = value.Encode(opt.typed()); err != nil {
			return
		}
		text := strings.TrimSuffix(line.String(), "\n")
		if opt.origin.kind != "" {
			text += "  # " + opt.origin.String()
		}
		_, err = fmt.Fprintln(w, text)
	})
	return err
}
