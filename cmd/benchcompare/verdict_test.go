package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// table is what benchstat says, with one benchmark of each kind.
const table = `goos: linux
pkg: github.com/postdate/postdate/poller
,base,,work,,,
,sec/op,CI,sec/op,CI,vs base,P
Step/a=1-2,5.67e-05,15%,8.73e-05,7%,+53.97%,p=0.002 n=6
geomean,5.6756e-05,,8.73e-05,,+53.97%,

pkg: github.com/postdate/postdate/store/pebble
,base,,work,,,
,sec/op,CI,sec/op,CI,vs base,P
Insert-2,5.5e-05,9%,5.6e-05,7%,+1.82%,p=0.002 n=6
Cycle-2,5.5e-05,9%,9.9e-05,7%,+80.00%,p=0.002 n=6
Busy-2,5.7e-05,2%,5.7e-04,1%,~,p=0.065 n=6
Ten-2,1e-05,2%,1.1e-05,1%,+10.00%,p=0.002 n=6
Faster-2,5e-05,2%,1e-05,1%,-80.00%,p=0.002 n=6
Old-2,5.7e-05,0%
New-2,,,5.7e-05,0%
Later-2,1e-05,0%,1.2e-05,0%,+20.00%,p=0.002 n=6
geomean,5.6841764673993755e-05,,6.0497305233386526e-05,,+9.80%,

,base,,work,,,
,cpu-µs/msg,CI,cpu-µs/msg,CI,vs base,P
Insert-2,33.49,3%,41.435,5%,+23.72%,p=0.002 n=6
Cycle-2,20,3%,20.1,5%,~,p=0.520 n=6
Later-2,,,12,0%

,base,,work,,,
,msg/s,CI,msg/s,CI,vs base,P
Busy-2,100,0%,300,0%,+200.00%,p=0.002 n=6

pkg: github.com/postdate/postdate/auth
,work,
,sec/op,CI
Tokens-2,5.7393500000000005e-05,7%
`

func TestVerdict(t *testing.T) {
	figures, err := read(table)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, worse(figures, 10), []string{
		"store/pebble Insert-2: cpu-µs/msg 33.49 → 41.435 (+23.72%, p=0.002 n=6)",
		"poller Step/a=1-2: sec/op 5.67e-05 → 8.73e-05 (+53.97%, p=0.002 n=6)",
		"store/pebble Later-2: sec/op 1e-05 → 1.2e-05 (+20.00%, p=0.002 n=6)", // the base knows no other unit
	})
	expect(t, worse(figures, 24), []string{"poller Step/a=1-2: sec/op 5.67e-05 → 8.73e-05 (+53.97%, p=0.002 n=6)"})
	expect(t, alone(figures), []string{
		"store/pebble Old-2 is only in the base", "store/pebble New-2 is new", "auth Tokens-2 is new",
	})
}

func expect(t *testing.T, figures []figure, want []string) {
	t.Helper()
	var got []string
	for _, f := range figures {
		got = append(got, f.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestATableThatCannotBeRead(t *testing.T) {
	for _, text := range []string{"Insert-2,1,2%\n", "pkg: x\n,base,,work\nInsert-2,1,2%\n", "a,\"b\n"} {
		if figures, err := read(text); err == nil {
			t.Errorf("%q is read as %v", text, figures)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(table)
	f.Add("pkg: x\n,work\n,sec/op\nA-2,1\n")
	f.Add(",work\n,,,,,vs base\n0,,,,,11") // a difference from nothing
	f.Add(",base\n,\nA,1,2,3,4,5\n\"\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		figures, err := read(text)
		if err != nil && figures != nil {
			t.Errorf("%v with figures", err)
		}
		for _, bad := range worse(figures, 10) {
			if slices.ContainsFunc(alone(figures), bad.sameBenchmark) {
				t.Errorf("%s is worse than nothing", bad)
			}
		}
	})
}

// TestHotPathsAreThere notices when a benchmark is renamed: else it would be left out.
func TestHotPathsAreThere(t *testing.T) {
	for _, h := range hotPaths {
		var all strings.Builder
		files, err := filepath.Glob(filepath.Join("../..", h.folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		for name := range strings.SplitSeq(h.names, "|") {
			if !strings.Contains(all.String(), fmt.Sprintf("func Benchmark%s(b *testing.B)", name)) {
				t.Errorf("%s has no Benchmark%s", h.folder, name)
			}
			if !h.has(figure{folder: h.folder, name: name + "-2"}) || !h.has(figure{folder: h.folder, name: name + "/a-b"}) {
				t.Errorf("%s does not know its own %s", h.pattern(), name)
			}
		}
	}
}
