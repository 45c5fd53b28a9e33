package main

import (
	"os"
	"reflect"
	"strconv"
	"strings"
)

// variableOf returns the variable of the environment that sets a key of the configuration:
// SVC_LOG_LEVEL sets log.level.
func variableOf(key string) string {
	return "SVC_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// readEnvironment sets the keys whose variables are set. A list is separated by commas. The values
// are checked with all others.
func (c *config) readEnvironment() error {
	c.variables = map[string]bool{}
	return c.readVariables(reflect.ValueOf(c).Elem(), "")
}

func (c *config) readVariables(v reflect.Value, key string) error {
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("toml")
			if name == "" {
				continue
			}
			below := strings.TrimPrefix(key+"."+name, ".")
			if err := c.readVariables(v.Field(i), below); err != nil {
				return err
			}
		}
		return nil
	}
	text, set := os.LookupEnv(variableOf(key))
	if !set {
		return nil
	}
	c.variables[key] = true
	var err error
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
		list := reflect.MakeSlice(v.Type(), 0, 0)
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = reflect.Append(list, reflect.ValueOf(part))
			}
		}
		v.Set(list)
	}
	if err == nil {
		return nil
	}
	want := "a whole number"
	if v.Kind() == reflect.Bool {
		want = "true or false"
	}
	return usageError(variableOf(key) + " must be " + want)
}
