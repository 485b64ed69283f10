package api

import (
	_ "embed" // for the OpenAPI document
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
)

// OpenAPI is the API's OpenAPI 3.1 document.
//
//go:embed openapi.json
var OpenAPI []byte

func (s *Server) getCluster(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	cluster := s.config.Cluster()
	return finish(ctx, fasthttp.StatusOK, appendCluster(begin(ctx), &cluster))
}

// getHealth says that the process is alive. getReady says whether it can serve.
func (s *Server) getHealth(ctx *fasthttp.RequestCtx) *Problem {
	return finish(ctx, fasthttp.StatusOK, append(begin(ctx), `{"status":"ok"}`...))
}

func (s *Server) getReady(ctx *fasthttp.RequestCtx) *Problem {
	if s.draining.Load() {
		return &Problem{Type: NotReady, Detail: "the node is shutting down: use another one", retryAfter: 1}
	}
	if err := s.config.Ready(); err != nil {
		return &Problem{Type: NotReady, Detail: err.Error(), retryAfter: 1}
	}
	return finish(ctx, fasthttp.StatusOK, append(begin(ctx), `{"status":"ready"}`...))
}

// getMetrics shows the series of all to the node's operators: administrators and the tenant
// default. Another tenant sees its own.
func (s *Server) getMetrics(ctx *fasthttp.RequestCtx) *Problem {
	shown := s.config.Metrics
	if !seesAll(ctx) {
		shown = ofTenant{shown, s.tenantOf(ctx)}
	}
	fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(shown, promhttp.HandlerOpts{}))(ctx)
	return nil
}

// seesAll reports whether the caller sees the figures of all tenants.
func seesAll(ctx *fasthttp.RequestCtx) bool {
	i := identityOf(ctx)
	return i == nil || i.Tenant == postdate.DefaultTenant || i.Allows(auth.Admin)
}

// ofTenant gathers the series that have the label of one tenant.
type ofTenant struct {
	all    prometheus.Gatherer
	tenant string
}

// Gather is that of [prometheus.Gatherer].
func (o ofTenant) Gather() (own []*dto.MetricFamily, err error) {
	families, err := o.all.Gather()
	if err != nil {
		return nil, errors.New("the metrics cannot be gathered: ask an operator") // err may quote others' series
	}
	for _, f := range families {
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
			return !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
				return l.GetName() == "tenant" && l.GetValue() == o.tenant
			})
		})
		if len(f.Metric) > 0 {
			own = append(own, f)
		}
	}
	return own, nil
}

func (s *Server) getOpenAPI(ctx *fasthttp.RequestCtx) *Problem {
	return finish(ctx, fasthttp.StatusOK, append(begin(ctx), OpenAPI...))
}
