//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
)

// callTimeout is when a client gives up a call.
const callTimeout = 8 * time.Second

// call makes one call to a node. A body is sent as JSON.
func call(n *cluster.Node, method, path string, body any) answer {
	return callWithin(callTimeout, n, method, path, body)
}

func callWithin(timeout time.Duration, n *cluster.Node, method, path string, body any) answer {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var reader io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			panic(err) // our own types
		}
		reader = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Name+path, reader)
	if err != nil {
		panic(err) // our own paths
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := n.Client().Do(req)
	if err != nil {
		return answer{}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}
	}
	return answer{code: res.StatusCode, body: b}
}
