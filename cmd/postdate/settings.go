package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/pflag"
)

// A setting is a flag, an environment variable and a key of the configuration file, all of the
// same name; the first of them that the user sets wins. The flags hold the values: what the
// command line does not set is set from the environment, then from the file, through the flag's
// own parser.

const envPrefix = "POSTDATE_"

// configFlag is the flag that names the file; it cannot be a key of the file.
const configFlag = "config"

// envName returns the environment variable of a flag.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// resolve sets the flags that the command line did not set. Its errors are usage errors that
// say where the value came from.
func resolve(flags *pflag.FlagSet, environ []string) error {
	env := environment(environ)
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		value := env[envName(f.Name)]
		if f.Changed || value == "" || f.Name == "help" || err != nil {
			return
		}
		err = set(f, value, envName(f.Name))
	})
	config := flags.Lookup(configFlag)
	if err != nil || config == nil || config.Value.String() == "" {
		return err
	}
	return resolveFile(flags, config.Value.String())
}

// set sets f to a value that came from source.
func set(f *pflag.Flag, value, source string) error {
	if err := f.Value.Set(value); err != nil {
		return valueError(source, value, f)
	}
	f.Changed = true
	return nil
}

// valueError says what values a setting accepts instead of value.
func valueError(source, value string, f *pflag.Flag) error {
	want := "a " + f.Value.Type()
	switch f.Value.Type() {
	case "int", "int64":
		want = "a whole number"
	case "intSlice":
		want = "a list of whole numbers like 1000000,10000000"
	case "float", "float64":
		want = "a number"
	case "bool":
		want = "true or false"
	case "duration":
		want = "a duration like 90s, 15m or 168h"
	case "size":
		want = "a size like 65536, 256KiB or 1GiB, of at most 64GiB"
	}
	if c, ok := f.Value.(*choice); ok {
		want = "one of " + strings.Join(c.allowed, ", ")
	}
	if _, ok := f.Value.(*tenantName); ok {
		want = "a tenant's name"
	}
	return usagef("%s: %q is not %s", source, value, want)
}

// environment returns the POSTDATE_ variables of an environment.
func environment(environ []string) map[string]string {
	env := make(map[string]string)
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, envPrefix) {
			env[name] = value
		}
	}
	return env
}

// unknownEnvironment lists the POSTDATE_ variables that belong to no setting, each with the
// nearest known name, or "". They deserve a warning, not an error: Kubernetes sets
// POSTDATE_SERVICE_HOST and the like if there is a service called postdate.
func unknownEnvironment(flags *pflag.FlagSet, environ []string) (unknown [][2]string) {
	var known []string
	for _, name := range slices.Concat(connectionFlags, flagNames(flags)) {
		known = append(known, envName(name))
	}
	for _, name := range slices.Sorted(maps.Keys(environment(environ))) {
		if !slices.Contains(known, name) {
			unknown = append(unknown, [2]string{name, nearest(name, known)})
		}
	}
	return unknown
}

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	return names
}

// nearest returns the known name most like name, or "" if even that one would need changes to
// more than a third of it.
func nearest(name string, known []string) string {
	best, distance := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := levenshtein.ComputeDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	return best
}

// didYouMean ends a sentence about an unknown name.
func didYouMean(prefix, name string) string {
	if name == "" {
		return ""
	}
	return ": did you mean " + prefix + name + "?"
}
