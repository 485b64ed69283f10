// A module of its own: what the linters need is nothing that Postdate needs.
module deploylint

go 1.26

require (
	github.com/compose-spec/compose-go/v2 v2.16.2
	github.com/prometheus/prometheus v0.305.0
)
