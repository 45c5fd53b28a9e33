package main

import (
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// variableOf returns the variable of the environment that sets a key of the configuration:
// SVC_LOG_LEVEL sets log.level.
func variableOf(key string) string {
	return "SVC_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// readEnvironment sets the keys whose variables are set. A list is separated by commas. The values
// are checked with all others. A misspelled variable is no error: Kubernetes sets some of this form
// for a service with the name svc.
func (c *config) readEnvironment() error {
	c.variables, c.unknown = map[string]bool{}, nil
	known := []string{"SVC_CONFIG", "SVC_KEY", "SVC_SOURCE_TOKEN"}
	for _, s := range c.settings() {
		if s.value.Kind() == reflect.Struct {
			continue
		}
		variable := variableOf(s.key)
		known = append(known, variable)
		text, set := os.LookupEnv(variable)
		if !set {
			continue
		}
		c.variables[s.key] = true
		if err := setText(s.value, text); err != nil {
			return usageError(variable + " must be " + wanted(s.value.Type()))
		}
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "SVC_") && !slices.Contains(known, name) {
			c.unknown = append(c.unknown, misspelled(name, known)...)
		}
	}
	return nil
}

// misspelled says which variable may be meant. Nil: none is near.
func misspelled(name string, known []string) []string {
	var all cobra.Command // as if they were commands
	for _, k := range known {
		all.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	if near := meant(&all, name); near != "" {
		return []string{name + " sets nothing" + near}
	}
	return nil
}

// setText sets the value of a key to what a text says.
func setText(v reflect.Value, text string) (err error) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var value bool
		value, err = strconv.ParseBool(text)
		v.SetBool(value)
	case reflect.Int, reflect.Int64:
		var value int64
		value, err = strconv.ParseInt(text, 10, 64)
		v.SetInt(value)
	case reflect.Slice:
		list := []string{}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		v.Set(reflect.ValueOf(list))
	}
	return err
}
