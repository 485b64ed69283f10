// Command deploylint reads compose files, Prometheus rules and a Grafana dashboard
// with the parsers of Docker Compose and Prometheus. .ci/deploy runs it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	failed := false
	for _, file := range os.Args[1:] {
		var problems []error
		switch {
		case strings.HasSuffix(file, ".rules.yaml"):
			_, problems = rulefmt.ParseFile(file, false)
		case filepath.Ext(file) == ".json":
			problems = dashboard(file)
		default:
			problems = compose(file)
		}
		for _, err := range problems {
			fmt.Println(file, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func compose(file string) []error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithOsEnv, cli.WithResolvedPaths(true))
	if err == nil {
		_, err = options.LoadProject(context.Background())
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// dashboard parses the expression of each panel.
func dashboard(file string) (problems []error) {
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		return []error{err}
	}
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			if _, err := parser.ParseExpr(strings.ReplaceAll(t.Expr, "$__rate_interval", "5m")); err != nil {
				problems = append(problems, fmt.Errorf("panel %q: %w", p.Title, err))
			}
		}
	}
	return problems
}
