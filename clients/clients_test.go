package clients

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postdate/postdate/api"
)

// The client that openapi-python-client makes has types that mypy understands, and a method for each
// operation that succeeds at a node.
func TestGeneratedPython(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t, "every.py")
	w.run("openapi-python-client", "generate", "--path", "openapi.json", "--meta", "none", "--output-path", "postdate_client", "--fail-on-warning")
	w.run("mypy", "--strict", "--follow-imports", "silent", "every.py") // the package's own code is not strict everywhere
	called, _ := w.run("python", "every.py", newNode(t).url, adminKey)
	checkEvery(t, called, func(operation string) string { return strings.ReplaceAll(operation, "_", "") })
}

// The types that openapi-typescript makes are right for openapi-fetch, and for what a node answers to each
// operation.
func TestGeneratedTypeScript(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t, "every.ts", "tsconfig.json", "package.json")
	if err := os.Symlink(filepath.Join(w.tools, "node_modules"), filepath.Join(w.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if out, said := w.run("openapi-typescript", "openapi.json", "--output", "postdate.d.ts"); strings.Contains(out+said, "⚠") {
		t.Errorf("openapi-typescript warns:\n%s%s", out, said)
	}
	w.run("tsc", "--project", ".")
	called, _ := w.run("node", "every.ts", newNode(t).url, adminKey)
	checkEvery(t, called, func(operation string) string { return operation })
}

// checkEvery checks that what was called, one a line, are all operations of the document. spelt returns a
// line as the document spells it, but for the case of letters.
func checkEvery(t *testing.T, called string, spelt func(string) string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, methods := range doc.Paths {
		for _, operation := range methods {
			left[strings.ToLower(operation.OperationID)] = true
		}
	}
	if len(left) == 0 {
		t.Error("the document has no operation")
	}
	for line := range strings.Lines(called) {
		delete(left, strings.ToLower(spelt(strings.TrimSpace(line))))
	}
	if len(left) > 0 {
		t.Errorf("these operations have no case in testdata: %q", slices.Sorted(maps.Keys(left)))
	}
}
