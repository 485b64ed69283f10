package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	committedResults  = "growth.jsonl"
	committedPictures = "../docs/performance"
)

// TestThePicturesAreThoseOfTheResults draws the committed results again. `go run . plot -into
// ../docs/performance` mends what it finds.
func TestThePicturesAreThoseOfTheResults(t *testing.T) {
	text, err := os.ReadFile(committedResults)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readMeasured(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := drawAll(all)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := filepath.Glob(filepath.Join(committedPictures, "*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range committed {
		axis := strings.TrimSuffix(filepath.Base(path), ".svg")
		picture, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(picture, drawn[axis]) {
			t.Errorf("%s is not what %s says: run go run . plot -into %s", path, committedResults, committedPictures)
		}
		delete(drawn, axis)
	}
	for axis := range drawn {
		t.Errorf("the picture of %s is missing: run go run . plot -into %s", axis, committedPictures)
	}
}

func exampleResults(t *testing.T) []measured {
	t.Helper()
	text, err := os.ReadFile("testdata/growth.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readMeasured(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAPictureIsTheSameEachTimeAndNamesItsUnits(t *testing.T) {
	all := exampleResults(t)
	once, err := drawAll(all)
	if err != nil {
		t.Fatal(err)
	}
	again, err := drawAll(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, axis := range axisNames {
		picture := once[axis]
		if !bytes.Equal(picture, again[axis]) {
			t.Errorf("the picture of %s is another one each time", axis)
		}
		for _, want := range append([]string{axisTitle[axis]}, unitsOf(panels)...) {
			if !bytes.Contains(picture, []byte(">"+want+"<")) {
				t.Errorf("the picture of %s does not say %q", axis, want)
			}
		}
		if bytes.Contains(picture, []byte("NaN")) || bytes.Contains(picture, []byte("#-")) {
			t.Errorf("the picture of %s has a place or a colour that is no number", axis)
		}
		if has := bytes.Contains(picture, []byte("MongoDB, burst")); has != (axis == "nodes") {
			t.Errorf("that the picture of %s has MongoDB's processor time is %v", axis, has)
		}
	}
}

func unitsOf(panels []panel) (units []string) {
	for _, p := range panels {
		units = append(units, p.unit, p.title)
	}
	return units
}

func TestTheTablesHaveTheMedianOfEachPoint(t *testing.T) {
	one := func(run int, rate float64) measured {
		return measured{point: point{Axis: "nodes", Value: 3, Run: run, Pending: 10},
			Figures: figures{schedulesPerS: rate, diskEmpty: 100, diskFull: 4100}}
	}
	want := `
## nodes

| nodes | 3 |
| --- | --- |
| Throughput: acknowledged, in batches, messages/s | 500 |
| Disk of a pending message: with indexes and log, bytes | 400 |
`
	if got := growthTables([]measured{one(1, 900), one(2, 500), one(3, 200)}); got != want {
		t.Errorf("the tables are\n%s\nnot\n%s", got, want)
	}
}

func TestALineThatIsNoResultIsNamed(t *testing.T) {
	_, err := readMeasured(strings.NewReader(`{"axis":"nodes"}` + "\n" + `{"axis":`))
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("the error is %v", err)
	}
}

func TestEachAxisChangesOneThing(t *testing.T) {
	g, err := parseGrowth([]string{"-mongodb", "mongodb://one/"})
	if err != nil {
		t.Fatal(err)
	}
	all := g.points(2)
	if len(all) != 4+5+4+4 {
		t.Fatalf("there are %d points", len(all))
	}
	base := point{Run: 2, Store: "embedded", Pending: 100_000, Buckets: 64, Payload: 256, Nodes: 1, Inboxes: 1,
		Batch: 500, Burst: 100_000, Rate: 1000}
	want := base
	want.Axis, want.Value, want.Pending = "pending", 10_000_000, 10_000_000
	if all[3] != want {
		t.Errorf("the point is %+v, not %+v", all[3], want)
	}
	want = base
	want.Axis, want.Value, want.Buckets = "buckets", 16, 16
	if all[4] != want {
		t.Errorf("the point is %+v, not %+v", all[4], want)
	}
	want = base // its bytes are bounded
	want.Axis, want.Value, want.Payload = "payload", 256<<10, 256<<10
	want.Pending, want.Burst, want.Batch, want.Rate = 1024, 1024, 32, 64
	if all[12] != want {
		t.Errorf("the point is %+v, not %+v", all[12], want)
	}
	want = base
	want.Axis, want.Value, want.Nodes, want.Inboxes, want.Store = "nodes", 1, 1, 5, "MongoDB"
	if all[13] != want {
		t.Errorf("the point is %+v, not %+v", all[13], want)
	}
}

func TestAnAxisIsLeftOutOnlyIfThatIsAskedFor(t *testing.T) {
	t.Setenv("POSTDATE_MONGODB", "")
	if _, err := parseGrowth(nil); err == nil || !strings.Contains(err.Error(), "-nodes none") {
		t.Errorf("without MongoDB the error is %v: it has to say what to do", err)
	}
	g, err := parseGrowth([]string{"-nodes", "none"})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(g.points(1), func(p point) bool { return p.Axis == "nodes" }) {
		t.Error("there are points with MongoDB")
	}
	for _, values := range []string{"0", "-1", "1,,2", "many", "1.5"} {
		if _, err := parseGrowth([]string{"-nodes", "none", "-pending", values}); err == nil {
			t.Errorf("it takes -pending %s", values)
		}
	}
}

func TestADatabaseIsPutIntoTheAddress(t *testing.T) {
	for address, want := range map[string]string{
		"mongodb://one": "mongodb://one/name",
		"mongodb://u:p@one:1,two:2/?replicaSet=r": "mongodb://u:p@one:1,two:2/name?replicaSet=r",
		"mongodb+srv://one/":                      "mongodb+srv://one/name",
		"mongodb://one/taken":                     "",
		"mongodb:///":                             "",
		"one:27017":                               "",
	} {
		got, err := withDatabase(address, "name")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("of %q it is %q, and the error is %v", address, got, err)
		}
	}
}
