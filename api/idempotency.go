package api

import (
	"context"
	"crypto/sha256"
	"strconv"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// A client that repeats a POST because it got no answer sends the same Idempotency-Key again. Messages of the
// request that have no scheduleId get one that follows from the key, so the repetition finds them. The store keeps
// which request a key stands for, so that another one under the same key is refused, whatever ids it names.

// idempotencyKeyBytesMax bounds an Idempotency-Key.
const idempotencyKeyBytesMax = 255

// idempotencyKey returns the Idempotency-Key of a request that has one.
func idempotencyKey(ctx *fasthttp.RequestCtx) (string, *Problem) {
	fields := ctx.Request.Header.PeekAll("Idempotency-Key")
	if len(fields) > 1 || !isVisible(fields[0], idempotencyKeyBytesMax) {
		return "", &Problem{Type: InvalidParameter, Parameter: "Idempotency-Key", Detail: "the Idempotency-Key " +
			"has to be one header of 1 to " + strconv.Itoa(idempotencyKeyBytesMax) +
			" visible ASCII characters: a UUID is a good one"}
	}
	return string(fields[0]), nil
}

// idOfKey is the schedule id of the message with the given index in a request with an Idempotency-Key.
func idOfKey(key string, index int) *string {
	id := uuid.NewSHA1(idempotencySpace, []byte(strconv.Itoa(index)+" "+key)).String()
	return &id
}

// idempotencySpace keeps the ids that follow from keys apart from other people's.
var idempotencySpace = uuid.MustParse("9b0c7e0a-5d0f-4f8e-9a53-6c1f2f6f3c55")

// noteKey refuses a request whose Idempotency-Key stands for another request.
func (s *Server) noteKey(ctx *fasthttp.RequestCtx, storeCtx context.Context, key string, body []byte) *Problem {
	sum := sha256.New()
	sum.Write(ctx.Path())
	sum.Write(body)
	digest := postdate.Digest(sum.Sum(nil))
	named := bucket.KeyOf(s.tenantOf(ctx), key, s.config.Buckets)
	kept, err := s.config.Requests.NoteRequest(storeCtx, named, digest, s.config.Now())
	if err != nil {
		return s.failed(ctx, "note an idempotency key", err, "")
	}
	if kept != digest {
		return &Problem{Type: KeyReused, Detail: "the Idempotency-Key " + clip(key) + " came with another body " +
			"or on another path before; nothing was done: take a new key for each request, and the same one only to " +
			"repeat it"}
	}
	return nil
}
