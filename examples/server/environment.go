package main

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// variableOf returns the variable of the environment that sets a key of the configuration:
// SVC_LOG_LEVEL sets log.level.
func variableOf(key string) string {
	return "SVC_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// others matches variables that set no key: those of commands, of this project's tests, and those
// that Kubernetes sets for a service of the name svc or svc-….
var others = regexp.MustCompile(`^SVC_((CONFIG|KEY|SOURCE_TOKEN|URL)$` +
	`|(CATALOGUES?|CPU|FUZZTIME|MUTANT|NO_PGBOUNCER|SLOW_SEED)$` +
	`|(BARRAGE|BENCH|CRASH|EXAMPLE|LINEAR|REQUIRE|TEST)_` +
	`|(.+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_|$))`)

// readEnvironment sets the keys whose variables are set, and refuses variables without a key or
// another use. A list is separated by commas. The values are checked with all others.
func (c *config) readEnvironment() error {
	c.variables = map[string]bool{}
	if err := c.readVariables(reflect.ValueOf(c).Elem(), ""); err != nil {
		return err
	}
	var unknown []error
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "SVC_") && !c.isSetting(name) && !c.referred[name] &&
			!others.MatchString(name) {
			unknown = append(unknown, usageError(name+" is not a variable of the configuration"))
		}
	}
	return errors.Join(unknown...)
}

// isSetting reports whether a variable sets a key, such as SVC_KEYS.
func (c *config) isSetting(name string) bool {
	for key := range c.variables {
		if variableOf(key) == name {
			return true
		}
	}
	return false
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
	if c.variables[key] = set; !set {
		return nil
	}
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
