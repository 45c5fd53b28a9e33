// A host that serves nothing of ours.
package main

import (
	"log"
	"net/http"
)

func main() {
	log.Fatal(http.ListenAndServe(":8080", http.NewServeMux()))
}
