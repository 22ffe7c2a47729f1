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
