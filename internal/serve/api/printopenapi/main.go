// Command printopenapi writes the OpenAPI document to its standard output. The linters read it.
package main

import (
	"log"
	"os"

	"github.com/musterhq/muster/internal/serve/api"
)

func main() {
	raw, err := api.New(api.Config{PublicURL: "https://muster.example", Currency: "USD"}, api.Deps{}).OpenAPI()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(raw); err != nil {
		log.Fatal(err)
	}
}
