package api

import (
	_ "embed" // for the OpenAPI document

	"github.com/valyala/fasthttp"
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

func (s *Server) getMetrics(ctx *fasthttp.RequestCtx) *Problem {
	s.scrape(ctx)
	return nil
}

func (s *Server) getOpenAPI(ctx *fasthttp.RequestCtx) *Problem {
	return finish(ctx, fasthttp.StatusOK, append(begin(ctx), OpenAPI...))
}
