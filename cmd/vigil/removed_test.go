package main

import (
	"errors"
	"strings"
	"testing"
)

// TestRemovedFlags: every way to set a removed flag is refused, and the error names the setting and
// what replaces it.
func TestRemovedFlags(t *testing.T) {
	for name, replacement := range removedFlags {
		variable := "ETCD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		file := writeConfig(t, "name: x\n"+name+": vigil\n")
		for _, tc := range []struct {
			args, env []string
			want      string
		}{
			{args: []string{"--" + name + "=vigil"}, want: "--" + name},
			{args: []string{"-" + name, "grpc-go", "--name=x"}, want: "--" + name},
			{args: []string{"--" + name}, want: "--" + name},
			{env: []string{variable + "=grpc-go"}, want: variable},
			{args: []string{"--config-file", file}, want: file + ":2: " + name},
			{env: []string{"ETCD_CONFIG_FILE=" + file}, want: file + ":2: " + name},
		} {
			_, err := parse(tc.args, tc.env)
			want := tc.want + " was removed: " + replacement
			if err == nil || !strings.HasPrefix(err.Error(), want) ||
				strings.Contains(err.Error(), "\n") || !errors.Is(err, errUsage) {
				t.Errorf("%q %q: %v, want %q", tc.args, tc.env, err, want)
			}
		}
		o := newOptions()
		o.each(func(opt *option) {
			if opt.name == name {
				t.Errorf("--%s is a flag", name)
			}
		})
	}
}
