package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

const envPrefix = "WARMROUTE_"

// source is where a configuration comes from.
type source struct {
	path  string         // the YAML file; "" = none
	env   []string       // as os.Environ gives it
	flags map[string]any // what was set on the command line, by path
}

// load reads the configuration: defaults, then the file, the environment and
// the flags. The error names every field that is wrong, by its path, with its
// value and what is allowed.
func (s source) load() (*Config, error) {
	k := koanf.New(".")
	if s.path != "" {
		data, err := os.ReadFile(s.path)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		if err := k.Load(rawbytes.Provider(data), yaml.Parser()); err != nil {
			return nil, fmt.Errorf("%s is not a YAML mapping: %w", s.path, err)
		}
	}
	if err := k.Load(env.Provider(".", env.Opt{
		Prefix:        envPrefix,
		EnvironFunc:   func() []string { return s.env },
		TransformFunc: envValue,
	}), nil); err != nil {
		return nil, fmt.Errorf("read the environment: %w", err)
	}
	if err := k.Load(confmap.Provider(s.flags, "."), nil); err != nil {
		return nil, fmt.Errorf("read the flags: %w", err)
	}

	cfg := defaultConfig()
	var meta mapstructure.Metadata
	err := k.UnmarshalWithConf("", &cfg, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName:    "yaml",
		Result:     &cfg,
		Metadata:   &meta,
		DecodeHook: durationHook,
		MatchName:  func(key, field string) bool { return key == field },
	}})
	for i := range cfg.Endpoints {
		cfg.Endpoints[i].fill()
	}
	problems := append(wrongTypes(err), unknownFields(meta.Unused)...)
	if err == nil {
		problems = append(problems, cfg.validate()...)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s:\n  %s", s.describe(), strings.Join(problems, "\n  "))
	}
	return &cfg, nil
}

func (s source) describe() string {
	if s.path == "" {
		return "the configuration"
	}
	return s.path
}

// envValue turns WARMROUTE_NATS__URL into nats.url and its text into the
// scalar that it would be in the file.
func envValue(name, text string) (path string, value any) {
	path = strings.ToLower(strings.TrimPrefix(name, envPrefix))
	path = strings.ReplaceAll(path, "__", ".")
	if err := yamlv3.Unmarshal([]byte(text), &value); err != nil || value == nil {
		value = text
	}
	switch value.(type) {
	case bool, int, float64, string:
	default:
		value = text
	}
	return path, value
}

// durationHook takes "5s" for a duration and refuses a bare number, which
// would be nanoseconds.
func durationHook(from, to reflect.Type, value any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() || from == to {
		return value, nil
	}
	text, ok := value.(string)
	if !ok {
		return nil, fmt.Errorf("%v has no unit: write 500ms, 5s, 2m or the like", value)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, errors.New(text + " is not a duration: write 500ms, 5s, 2m or the like")
	}
	return d, nil
}

// wrongTypes says of each field whose value is of another kind which one it
// wants.
func wrongTypes(err error) []string {
	if err == nil {
		return nil
	}
	// One error wraps the errors of all fields, and those of a mapping's fields
	// in turn: the innermost have the field's path.
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var problems []string
		for _, e := range list.Unwrap() {
			problems = append(problems, wrongTypes(e)...)
		}
		return problems
	}
	field, ok := err.(*mapstructure.DecodeError) //nolint:errorlint // this one, not one below it
	if !ok {
		if inner := errors.Unwrap(err); inner != nil {
			return wrongTypes(inner)
		}
		return []string{err.Error()}
	}
	var kind *mapstructure.UnconvertibleTypeError
	if errors.As(err, &kind) {
		return []string{fmt.Sprintf("%s: %#v is not allowed: %s", field.Name(), kind.Value, kindName(kind.Expected.Type()))}
	}
	return []string{fmt.Sprintf("%s: %v", field.Name(), field.Unwrap())}
}

// kindName is what an operator would call a field's type.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return `a text (in quotes, if it looks like a number)`
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping of fields"
	default:
		return t.String()
	}
}

// unknownFields says of each path that no field has it, and which is meant.
func unknownFields(paths []string) []string {
	known := configFieldNames()
	slices.Sort(paths)
	var problems []string
	for _, p := range paths {
		name := p[strings.LastIndex(p, ".")+1:]
		msg := p + ": unknown field"
		if near := nearest(name, known); near != "" {
			msg += "; did you mean " + near + "?"
		}
		problems = append(problems, msg)
	}
	return problems
}

// configFieldNames lists every field that a configuration can have.
func configFieldNames() []string { return fieldNames(reflect.TypeFor[Config]()) }

// fieldNames lists every field name in t and in what it holds.
func fieldNames(t reflect.Type) []string {
	for t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for f := range t.Fields() {
		names = append(names, f.Tag.Get("yaml"))
		names = append(names, fieldNames(f.Type)...)
	}
	return names
}

// nearest is the known name that differs from name least, "" when none is
// near.
func nearest(name string, known []string) string {
	best, bestDistance := "", len(name)/3+2
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions and replacements from a to b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
