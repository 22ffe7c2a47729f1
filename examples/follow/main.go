// Command follow prints the keys with a prefix and then every change of them. It continues after
// failures of members and the network, and after compactions: follow ENDPOINT,... PREFIX
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
		if kv := change.New; kv != nil {
			fmt.Printf("%q = %q\n", kv.Key, kv.Value)
		} else {
			fmt.Printf("%q is gone\n", change.Key())
		}
	}
}
