package api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// visibilityDefault is how long a message is hidden that is received without a visibility.
const visibilityDefault = 30 * time.Second

type receiveBody struct {
	Limit      *int    `json:"limit"`
	Wait       *string `json:"wait"`
	Visibility *string `json:"visibility"`
}

type ackBody struct {
	Receipts textList `json:"receipts"`
}

// postReceive answers with what a consumer is to handle next, and hides it from others for a while.
func (s *Server) postReceive(ctx *fasthttp.RequestCtx) *Problem {
	name, p := s.pathConsumer(ctx)
	if p == nil {
		p = refuseHeaders(ctx, "it brings other messages each time it comes", "Idempotency-Key")
	}
	if p != nil {
		return p
	}
	var body receiveBody
	if p := s.singleBody(ctx, &body, contentTypeJSON); p != nil {
		return p
	}
	r, p := body.check(name)
	if p != nil {
		return p
	}
	done, p := s.poll(ctx, r.Wait)
	if p != nil {
		return p
	}
	defer done()
	readCtx, cancel := context.WithTimeout(s.polls, r.Wait+s.config.StoreTimeout)
	defer cancel()
	messages, err := s.config.Inbox.Receive(readCtx, r)
	if s.polls.Err() != nil && postdate.KindOf(err) == postdate.KindUnavailable {
		messages, err = nil, nil // shutting down: the consumer continues on another node
	}
	if err != nil {
		return consumerProblem(s.failed(ctx, "receive from inbox", err, ""),
			"; what it hid comes again when its visibility ends")
	}
	b := append(begin(ctx), `{"messages":[`...)
	for i := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"receipt":"`...)
		b = append(b, receiptText(name, messages[i].Receipt)...)
		b = append(b, `","deliveries":`...)
		b = strconv.AppendInt(b, int64(messages[i].Deliveries), 10)
		b = append(appendInboxFields(append(b, ','), &messages[i].InboxMessage), '}')
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}

// check turns a body into what is asked of the inbox.
func (b *receiveBody) check(name store.ConsumerName) (r store.InboxReceive, p *Problem) {
	r = store.InboxReceive{ConsumerName: name, Limit: limitDefault, Visibility: visibilityDefault}
	if b.Limit != nil {
		r.Limit = *b.Limit
	}
	if r.Limit < 1 || r.Limit > postdate.InboxLimitMax {
		return r, fieldProblem("/limit", invalid("limit %d is not between 1 and %d", r.Limit, postdate.InboxLimitMax))
	}
	var err error
	if b.Wait != nil {
		if r.Wait, err = parseWait(*b.Wait); err != nil {
			return r, fieldProblem("/wait", err)
		}
	}
	if b.Visibility != nil {
		r.Visibility, err = ParseDuration(*b.Visibility)
		if err == nil && (r.Visibility < postdate.VisibilityMin || r.Visibility > postdate.VisibilityMax) {
			err = invalid("visibility must be between %s and %s: it has to last until the message is handled",
				postdate.VisibilityMin, postdate.VisibilityMax)
		}
		if err != nil {
			return r, fieldProblem("/visibility", err)
		}
	}
	return r, nil
}

// postAck acknowledges what a consumer has handled. Each receipt succeeds or fails alone.
func (s *Server) postAck(ctx *fasthttp.RequestCtx) *Problem {
	name, p := s.pathConsumer(ctx)
	if p != nil {
		return p
	}
	var body ackBody
	if p := s.singleBody(ctx, &body, contentTypeJSON); p != nil {
		return p
	}
	switch n := len(body.Receipts); {
	case body.Receipts == nil:
		return fieldProblem("/receipts", invalid("receipts is missing: give an array of receipts"))
	case n > postdate.InboxLimitMax:
		return fieldProblem("/receipts", postdate.E(postdate.KindTooLarge,
			"%d receipts are too many: at most %d are allowed in one request; split it", n, postdate.InboxLimitMax))
	}
	problems := make([]*Problem, len(body.Receipts))
	var places []int
	var receipts []store.Receipt
	for i, text := range body.Receipts {
		receipt, err := readReceipt(name, text)
		if err != nil {
			problems[i] = fieldProblem("", err)
			continue
		}
		places, receipts = append(places, i), append(receipts, receipt)
	}
	if len(receipts) > 0 {
		storeCtx := s.calls.begin()
		errs, err := s.config.Inbox.Acknowledge(storeCtx, name, receipts)
		if err != nil {
			return consumerProblem(s.failed(ctx, "acknowledge", err, ""), "; repeating the request is safe, and tells")
		}
		for i, err := range errs {
			if err != nil {
				problems[places[i]] = &Problem{Type: ReceiptOutdated, Detail: err.Error()}
			}
		}
	}
	b := append(begin(ctx), `{"results":[`...)
	for i, text := range body.Receipts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"receipt":`...), clip(text))
		if problems[i] != nil {
			b = problems[i].appendJSON(append(b, `,"error":`...))
		} else {
			b = append(b, `,"acked":true`...)
		}
		b = append(b, '}')
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}

// consumerProblem says of an unknown outcome what is true of consumers.
func consumerProblem(p *Problem, then string) *Problem {
	if p.Type == UnknownOutcome {
		p.Detail = "the store did not answer in time: it may have been done or not" + then
	}
	return p
}

// pathConsumer is the consumer that the path names, if the caller may read its inbox.
func (s *Server) pathConsumer(ctx *fasthttp.RequestCtx) (name store.ConsumerName, p *Problem) {
	name.Tenant = s.tenantOf(ctx)
	if name.Inbox, p = pathInbox(ctx); p != nil {
		return name, p
	}
	name.Consumer, p = pathName(ctx, "consumer", func(consumer string) error {
		if _, err := postdate.ParseChannel("inbox:" + consumer); err != nil {
			return invalid("the consumer's name %q is invalid: like an inbox's it has 1 to %d characters of "+
				"A-Z a-z 0-9 - _ . : ~ @ + = and comma", clip(consumer), postdate.InboxNameBytesMax)
		}
		return nil
	})
	return name, p
}

// A receipt's text is a checksum and what the receipt stands for. The checksum is over the consumer's name too: the
// receipt of another consumer is refused. It keeps mistakes apart, and needs no secret: who may use the consumer may
// acknowledge anyway.
const receiptBytes = 4 + 3*8

var receiptEncoding = base64.RawURLEncoding.Strict()

func receiptText(name store.ConsumerName, r store.Receipt) string {
	b := make([]byte, 4, receiptBytes)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Place.Segment))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Place.Number))
	b = binary.BigEndian.AppendUint64(b, r.ID)
	binary.BigEndian.PutUint32(b, receiptSum(name, b[4:]))
	return receiptEncoding.EncodeToString(b)
}

func receiptSum(name store.ConsumerName, rest []byte) uint32 {
	text := name.Tenant + "\x00" + name.Inbox + "\x00" + name.Consumer + "\x00" + string(rest)
	return crc32.ChecksumIEEE([]byte(text))
}

func readReceipt(name store.ConsumerName, text string) (r store.Receipt, err error) {
	var b []byte
	if len(text) == receiptEncoding.EncodedLen(receiptBytes) {
		b, _ = receiptEncoding.DecodeString(text) // with an error it returns less
	}
	if len(b) != receiptBytes || binary.BigEndian.Uint32(b) != receiptSum(name, b[4:]) {
		return r, invalid("receipt %q is not one of this consumer: send it as it was received", clip(text))
	}
	r.Place.Segment = int64(binary.BigEndian.Uint64(b[4:]))
	r.Place.Number = int64(binary.BigEndian.Uint64(b[12:]))
	r.ID = binary.BigEndian.Uint64(b[20:])
	return r, nil
}
