package clients

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/postdate/postdate/api"
)

// scenario is what every client plays; scenario/README.md says what its fields mean.
type scenario struct {
	Phases []struct {
		Name  string `json:"name"`
		Steps []step `json:"steps"`
	} `json:"phases"`
}

type step struct {
	Do        string            `json:"do"`
	With      map[string]any    `json:"with"`
	Want      any               `json:"want"`
	Problem   string            `json:"problem"`
	MayBeDone *bool             `json:"mayBeDone"`
	Save      map[string]string `json:"save"`
	Key       string            `json:"key"`
	Retry     *bool             `json:"retry"`
	Timeout   string            `json:"timeout"`
	Fault     json.RawMessage   `json:"fault"`
}

const scenarioPath = "scenario/scenario.json"

func readScenario(t *testing.T) (s scenario) {
	t.Helper()
	f, err := os.Open(scenarioPath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// The scenario has every operation and every problem type of the document.
func TestScenarioIsWhole(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths      map[string]map[string]struct{ OperationID string }
		Components struct {
			Schemas struct{ ProblemType struct{ Enum []string } }
		}
	}
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, methods := range doc.Paths {
		for _, operation := range methods {
			left[operation.OperationID] = true
		}
	}
	for _, problem := range doc.Components.Schemas.ProblemType.Enum {
		left[problem] = true
	}
	if len(left) < 2 {
		t.Error("the document has no operations or no problem types")
	}
	for _, phase := range readScenario(t).Phases {
		for _, s := range phase.Steps {
			delete(left, s.Do)
			delete(left, api.ProblemPrefix+s.Problem)
			want, err := json.Marshal(s.Want)
			if err != nil {
				t.Fatal(err)
			}
			for problem := range left { // of one item of many
				if strings.Contains(string(want), `"type":"`+problem+`"`) {
					delete(left, problem)
				}
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("these have no step in %s: %q", scenarioPath, slices.Sorted(maps.Keys(left)))
	}
}

// The Go client plays the scenario.
func TestScenarioGo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	h := newHarness(t)
	p := &player{t: t, harness: h, saved: map[string]string{}}
	for _, phase := range readScenario(t).Phases {
		for n, s := range phase.Steps {
			if err := p.play(s); err != nil {
				t.Fatalf("%s, step %d, %s: %v", phase.Name, n+1, s.Do, err)
			}
		}
	}
}
