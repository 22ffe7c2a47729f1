// Command follow prints every change of the keys that begin with a prefix, first those there are, and goes on
// whatever happens to the members, the network and the history: follow ENDPOINT,... PREFIX
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	"vigil/client"
	"vigil/client/mirror"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := client.New(client.Config{Endpoints: strings.Split(os.Args[1], ",")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	m, err := mirror.Follow(ctx, c, os.Args[2], mirror.String)
	if err != nil {
		log.Fatal(err)
	}
	for change, err := range m.Changes(ctx) {
		if err != nil {
			return
		}
		if it := change.New; it != nil {
			fmt.Printf("%q = %q\n", it.Key, it.Value)
		} else {
			fmt.Printf("%q is gone\n", change.Key())
		}
	}
}
