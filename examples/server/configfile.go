package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readKeys reads the configuration file into c. Keys that the file lacks stay as they are. It
// returns the line of each key in the file. Every error names the file, the line and the key.
func (c *config) readKeys() (lines map[string]int, err error) {
	data, err := readFile(c.file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // of some editors
	lines, err = c.linesOf(data)
	if err == nil {
		err = c.checkCase(lines)
	}
	if err != nil {
		return nil, err
	}
	decoder := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		return nil, c.explain(err, data, lines)
	}
	if w, ok := errors.AsType[*wrong](c.each(expand)); ok {
		return nil, c.place(w, lines)
	}
	return lines, nil
}

// at returns an error at a line of the file.
func (c *config) at(line int, problem string) error {
	return fmt.Errorf("%s:%d: %s", c.file, line, problem)
}

// linesOf returns the line of each key and table in the file. It refuses a key that appears twice:
// the library finds that as well, but does not say where. It leaves other faults to the library.
func (c *config) linesOf(data []byte) (map[string]int, error) {
	lines, table := map[string]int{}, ""
	parser := unstable.Parser{}
	parser.Reset(data)
	for parser.NextExpression() {
		expression := parser.Expression()
		if expression.Kind == unstable.Comment {
			continue
		}
		if expression.Kind != unstable.KeyValue {
			table = ""
		}
		path, line := []string{}, 0
		for key := expression.Key(); key.Next(); {
			path = append(path, string(key.Node().Data))
			line = parser.Shape(key.Node().Raw).Start.Line
		}
		name := strings.TrimPrefix(table+"."+strings.Join(path, "."), ".")
		if first, twice := lines[name]; twice {
			return nil, c.at(line, fmt.Sprintf("%s is in line %d already: remove one", name, first))
		}
		lines[name] = line
		if expression.Kind != unstable.KeyValue {
			table = name
		}
	}
	return lines, nil
}

// checkCase refuses keys that differ from a known one in upper and lower case only. TOML tells them
// apart, and the library does not.
func (c *config) checkCase(lines map[string]int) error {
	for name, line := range lines {
		for _, known := range c.settings() {
			if name != known.key && strings.EqualFold(name, known.key) {
				return c.at(line, fmt.Sprintf("%s is not a key: write %s", name, known.key))
			}
		}
	}
	return nil
}

// setting is a key of the configuration, or a table, with its value.
type setting struct {
	key   string
	value reflect.Value
}

// settings returns all keys and tables of c, in order, with values that can be set.
func (c *config) settings() []setting { return settingsOf(reflect.ValueOf(c).Elem(), "") }

func settingsOf(table reflect.Value, prefix string) (all []setting) {
	for field, value := range table.Fields() {
		name := field.Tag.Get("toml")
		if name == "" {
			continue
		}
		all = append(all, setting{prefix + name, value})
		if value.Kind() == reflect.Struct {
			all = append(all, settingsOf(value, prefix+name+".")...)
		}
	}
	return all
}

// explain adds the place to an error of the library.
func (c *config) explain(err error, data []byte, lines map[string]int) error {
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		var all []error
		for _, e := range unknown.Errors {
			line, _ := e.Position()
			name := strings.Join(e.Key(), ".")
			all = append(all, c.at(line, name+" is not a key of the configuration"))
		}
		return errors.Join(all...)
	}
	line := firstBad(data, lines)
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ = bad.Position()
	}
	problem := strings.TrimPrefix(err.Error(), "toml: ")
	tooLarge := strings.HasSuffix(problem, strconv.ErrRange.Error()) // the library keeps only the text
	isTOML := tooLarge || toml.Unmarshal(data, new(map[string]any)) == nil
	for name, at := range lines {
		if at != line {
			continue
		}
		all := c.settings()
		known := slices.IndexFunc(all, func(s setting) bool { return s.key == name })
		switch {
		case known >= 0 && isTOML:
			problem = name + " must be " + wanted(all[known].value.Type())
		case isTOML:
			problem = name + " is not a key of the configuration"
		default:
			problem = name + ": " + problem
		}
	}
	return c.at(line, problem)
}

// wanted says how the value of a key is written, by its type.
func wanted(key reflect.Type) string {
	switch {
	case key == reflect.TypeFor[duration]():
		return `a time in quotes, such as "30s"`
	case key.Kind() == reflect.String:
		return "a text in quotes"
	case key.Kind() == reflect.Bool:
		return "true or false"
	case key.Kind() == reflect.Slice:
		return `a list of texts, such as ["a", "b"]`
	case key.Kind() == reflect.Struct:
		return "a table, once"
	}
	return "a whole number of at most 18 digits"
}

// firstBad returns the line of the first key that cannot be decoded. The library does not say where
// some faults are, such as a list in place of a text.
func firstBad(data []byte, lines map[string]int) (line int) {
	starts := slices.Sorted(maps.Values(lines))
	all := bytes.SplitAfter(data, []byte("\n"))
	for i, start := range starts {
		end := len(all)
		if i+1 < len(starts) {
			end = starts[i+1] - 1
		}
		if toml.Unmarshal(bytes.Join(all[:end], nil), new(config)) != nil {
			return start
		}
	}
	return len(all)
}

// each calls do with every text of c and the key that it belongs to, also in lists, and stops at an
// error.
func (c *config) each(do func(key string, text reflect.Value) error) (err error) {
	for _, s := range c.settings() {
		switch s.value.Kind() {
		case reflect.String:
			err = do(s.key, s.value)
		case reflect.Slice:
			for i := 0; i < s.value.Len() && err == nil; i++ {
				err = do(s.key, s.value.Index(i))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var reference = regexp.MustCompile(`\$\{([^}]*)\}?`)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces each ${NAME} of a text with that variable of the environment.
func expand(key string, text reflect.Value) error {
	var problem string
	expanded := reference.ReplaceAllStringFunc(text.String(), func(found string) string {
		name := strings.TrimSuffix(strings.TrimPrefix(found, "${"), "}")
		value, set := os.LookupEnv(name)
		switch {
		case !strings.HasSuffix(found, "}") || !variable.MatchString(name):
			problem = "has a bad reference: write ${NAME} for a variable of the environment"
		case !set:
			problem = "needs the variable " + name + " of the environment, which is not set"
		}
		return value
	})
	if problem != "" {
		return &wrong{key, problem}
	}
	text.SetString(expanded)
	return nil
}
