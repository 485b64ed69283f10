package api

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// limitDefault is the number of messages on a page if the client gives no limit.
const limitDefault = 100

// query checks that the URL has only known parameters, each once.
func query(ctx *fasthttp.RequestCtx, known ...string) (*fasthttp.Args, *Problem) {
	args := ctx.QueryArgs()
	if args.Len() == 0 {
		return args, nil
	}
	seen := make(map[string]bool, len(known))
	for _, name := range known {
		seen[name] = false
	}
	for key := range args.All() {
		twice, ok := seen[string(key)]
		if !ok {
			return nil, unknownParameter(string(key), known)
		}
		if twice {
			return nil, parameterProblem(string(key), invalid("parameter %s stands twice: leave one", key))
		}
		seen[string(key)] = true
	}
	return args, nil
}

func unknownParameter(name string, known []string) *Problem {
	p := &Problem{Type: InvalidParameter, Parameter: clip(name), Suggestion: Nearest(name, known)}
	p.Detail = fmt.Sprintf("parameter %q is not known", clip(name))
	switch {
	case p.Suggestion != "":
		p.Detail += fmt.Sprintf(": did you mean %q?", p.Suggestion)
	case len(known) == 0:
		p.Detail += ": this call takes none"
	default:
		p.Detail += ": known are " + strings.Join(known, ", ")
	}
	return p
}

// noQuery refuses every parameter.
func noQuery(ctx *fasthttp.RequestCtx) *Problem {
	_, p := query(ctx)
	return p
}

// limitOf reads the parameter limit.
func limitOf(args *fasthttp.Args, otherwise, limitMax int) (int, *Problem) {
	if !args.Has("limit") {
		return otherwise, nil
	}
	text := string(args.Peek("limit"))
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > limitMax {
		return 0, parameterProblem("limit", invalid("limit %q is not a whole number between 1 and %d",
			clip(text), limitMax))
	}
	return n, nil
}

// timeOf reads a parameter that is a time. It returns 0 if the parameter is absent.
func timeOf(args *fasthttp.Args, name string) (postdate.Time, *Problem) {
	if !args.Has(name) {
		return 0, nil
	}
	text := string(args.Peek(name))
	at, err := postdate.ParseTime(text)
	if err != nil && strings.Contains(text, " ") {
		err = invalid("time %q has a space where a URL had a plus sign: write + as %%2B", clip(text))
	}
	if err != nil {
		return 0, parameterProblem(name, err)
	}
	return at, nil
}

// countOf formats a count, such as "1,000 bytes". of is the unit in the singular.
func countOf(n int, of string) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n != 1 {
		of += "s"
	}
	return digits + " " + of
}
