package main

import "github.com/spf13/cobra"

// examples has the examples of commands whose definitions have none.
var examples = map[string]string{
	"alarm list":         "vigilctl alarm list",
	"alarm disarm":       "vigilctl alarm disarm",
	"auth enable":        "vigilctl user add root && vigilctl auth enable",
	"auth disable":       "vigilctl auth disable --user root",
	"auth status":        "vigilctl auth status --user root",
	"downgrade validate": "vigilctl downgrade validate 3.6",
	"downgrade enable":   "vigilctl downgrade enable 3.6",
	"downgrade cancel":   "vigilctl downgrade cancel",
	"lease list":         "vigilctl lease list",
	"role add":           "vigilctl role add web",
	"role delete":        "vigilctl role delete web",
	"role get":           "vigilctl role get web",
	"role list":          "vigilctl role list",
	"user delete":        "vigilctl user delete alice",
	"user get":           "vigilctl user get alice --detail",
	"user grant-role":    "vigilctl user grant-role alice web",
	"user list":          "vigilctl user list",
	"user passwd":        "vigilctl user passwd alice",
	"user revoke-role":   "vigilctl user revoke-role alice web",
}

// addExamples sets the examples of the commands below c.
func addExamples(c *cobra.Command, path string) {
	for _, sub := range c.Commands() {
		name := path + sub.Name()
		if text := examples[name]; text != "" {
			sub.Example = "  " + text
		}
		addExamples(sub, name+" ")
	}
}
