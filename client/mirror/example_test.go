package mirror_test

import (
	"context"
	"fmt"
	"log"

	"vigil/client"
	"vigil/client/mirror"
)

type service struct {
	Host string `json:"host"`
	Port int    `json:"port"`
}

func ExampleFollow() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(ctx, "services/web", []byte(`{"host":"10.0.0.7","port":80}`)); err != nil {
		log.Fatal(err)
	}

	m, err := mirror.Follow(ctx, c, "services/", mirror.JSON[service])
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	view, err := m.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	web, _ := view.Get("services/web")
	fmt.Println(web.Value.Host, web.Value.Port)

	// A read that sees a write of one's own.
	put, err := c.Put(ctx, "services/web", []byte(`{"host":"10.0.0.8","port":80}`))
	if err != nil {
		log.Fatal(err)
	}
	if view, err = m.At(ctx, put.Header.Revision); err != nil {
		log.Fatal(err)
	}
	web, _ = view.Get("services/web")
	fmt.Println(web.Value.Host, web.Value.Port)
	// Output:
	// 10.0.0.7 80
	// 10.0.0.8 80
}

// An index finds items by a word of their value. Changes follow what happens after the view.
func ExampleMirror() {
	ctx := context.Background()
	c, err := client.Connect(ctx, client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for key, host := range map[string]string{"nodes/a": "10.0.0.7", "nodes/b": "10.0.0.8",
		"nodes/c": "10.0.0.7"} {
		if _, err := c.Put(ctx, key, []byte(host)); err != nil {
			log.Fatal(err)
		}
	}
	m, err := mirror.Start(ctx,
		mirror.Config[string]{Client: c, Key: "nodes/", Decode: mirror.String,
			Indexes: map[string]func(*mirror.Item[string]) []string{
				"host": func(it *mirror.Item[string]) []string { return []string{it.Value} },
			}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	view, err := m.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for it := range view.Find("host", "10.0.0.7") {
		fmt.Println(it.Key)
	}
	for change, err := range m.Changes(ctx) { // first every key, as new
		if err != nil {
			log.Fatal(err)
		}
		if change.New == nil {
			fmt.Println("deleted", change.Key())
			break
		}
		if change.Key() == "nodes/b" {
			if _, err := c.Delete(ctx, "nodes/b"); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// nodes/a
	// nodes/c
	// deleted nodes/b
}
