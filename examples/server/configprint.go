package main

import (
	"io"

	"github.com/pelletier/go-toml/v2"
)

// print writes c as a configuration file. It prints no password: the address of the database has
// PASSWORD in place of one. It prints the values of ${NAME} references, and all defaults.
func (c config) print(to io.Writer) error {
	shown, _ := withoutPassword(c.DB)
	if c.DB = shown; shown == "URL" {
		c.DB = "postgres://URL" // so that the output stays a valid file
	}
	return toml.NewEncoder(to).Encode(c)
}
