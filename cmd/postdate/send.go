package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
)

// sendRequest is the body of POST /v1/messages without the payload, which is added byte for
// byte.
type sendRequest struct {
	ScheduleID      string             `json:"scheduleId,omitempty"`
	Channel         string             `json:"channel"`
	ExecutionTime   string             `json:"executionTime,omitempty"`
	Delay           string             `json:"delay,omitempty"`
	Recurrence      *recurrenceRequest `json:"recurrence,omitempty"`
	ContentType     string             `json:"contentType,omitempty"`
	PayloadEncoding string             `json:"payloadEncoding,omitempty"`
	Headers         map[string]string  `json:"headers,omitempty"`
	Key             string             `json:"key,omitempty"`
	Priority        string             `json:"priority,omitempty"`
	Labels          []string           `json:"labels,omitempty"`
	ExpiresAt       string             `json:"expiresAt,omitempty"`
	FailureChannel  string             `json:"failureChannel,omitempty"`
}

type sendCommand struct {
	clientCommand
	request sendRequest
	rule    recurrenceRequest
	data    string
	headers []string
}

func newSend(p process) *cobra.Command {
	s := &sendCommand{clientCommand: clientCommand{process: p}}
	cmd := &cobra.Command{
		Use:   "send (--at TIME | --in DELAY | --every INTERVAL | --cron RULE) --channel CHANNEL --data DATA",
		Short: "Schedule a message",
		Long: `Schedule a message: it goes to its channel when its time comes, and can be
cancelled until then. With --id it is safe to repeat: the same id with the same
content schedules nothing twice.

With --every or --cron the message recurs, until --end, --max-runs or a cancel
ends it. Preview shows when.

The data is sent as JSON if it is JSON, else as text, else (bytes that are not
UTF-8) in base64; the consumer gets exactly the bytes. --content-type overrides
the type that goes with them: application/json, text/plain; charset=utf-8, or
application/octet-stream.`,
		Example: `  postdate send --in 15m --channel rabbitmq:reminders --id order-42 --data '{"order":42}'
  postdate send --at 2027-01-31T09:30:00+01:00 --channel inbox:test --data @letter.txt
  date | postdate send --in 5s --channel inbox:test --data -
  postdate send --cron '0 9 * * MON-FRI' --timezone Europe/Berlin --channel inbox:test --id report --data go`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&s.request.ExecutionTime, "at", "", "when: an RFC 3339 time with its zone, like 2027-01-31T09:30:00Z")
	f.StringVar(&s.request.Delay, "in", "", "when: a delay from now, like 90s, 15m or PT15M")
	f.StringVar(&s.request.Channel, "channel", "",
		"where to: rabbitmq:QUEUE, rabbitmq:EXCHANGE/KEY, kafka:TOPIC, https://… or inbox:NAME")
	f.StringVar(&s.data, "data", "", "what: the text itself, @FILE, or - for standard input")
	f.StringVar(&s.request.ScheduleID, "id", "", "the message's schedule id (default: the server makes one)")
	f.StringVar(&s.request.ContentType, "content-type", "", "the data's type (default: by its look, see above)")
	f.StringArrayVar(&s.headers, "header", nil, "a header for the consumer, NAME=VALUE; may be repeated")
	f.StringVar(&s.request.Key, "key", "", "the record key on channels that have one")
	f.StringVar(&s.request.Priority, "priority", "",
		"high, medium or low: its part of what goes out while more is overdue than the channel takes (default: medium)")
	f.StringArrayVar(&s.request.Labels, "label", nil, "a label to find the message by; may be repeated")
	f.StringVar(&s.request.ExpiresAt, "expires-at", "", "not delivered from this RFC 3339 time on")
	f.StringVar(&s.request.FailureChannel, "failure-channel", "",
		"where a message with the reason goes if this one cannot be delivered (default: what is set for the channel)")
	s.rule.register(f)
	s.rule.registerRun(f)
	s.withJSON(cmd, "print the server's answer as it is")
	return s.bind(cmd, s.run)
}

func (s *sendCommand) run(cmd *cobra.Command, c *client.Client, _ []string) error {
	body, err := s.body(cmd)
	if err != nil {
		return err
	}
	a, err := c.Do(cmd.Context(), client.Call{Method: http.MethodPost, Path: "/v1/messages", Body: body})
	if err != nil {
		return wrongUse(cmd, err)
	}
	if s.json {
		return printLine(cmd.OutOrStdout(), a.Body)
	}
	var answer client.Scheduled
	if err := decode(a.Body, &answer); err != nil {
		return err
	}
	verb := "scheduled"
	if a.Status == http.StatusOK {
		verb = "was scheduled already:"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s for %s (%s, bucket %d)\n",
		verb, answer.ScheduleID, shownTime(answer.ExecutionTime), answer.Status, answer.Bucket)
	return err
}

// body checks only what the server cannot check; the server's errors are better.
func (s *sendCommand) body(cmd *cobra.Command) ([]byte, error) {
	recurs := s.rule != recurrenceRequest{}
	if recurs {
		s.request.Recurrence = &s.rule
	}
	switch {
	case s.request.ExecutionTime == "" && s.request.Delay == "" && !recurs:
		return nil, usagef("say when: --at TIME, or --in DELAY; or how often: --every INTERVAL, or --cron RULE")
	case recurs && s.rule.Every == "" && s.rule.Cron == "":
		return nil, usagef("say how often: --every INTERVAL, or --cron RULE --timezone ZONE")
	case recurs && (s.request.ExecutionTime != "" || s.request.Delay != ""):
		return nil, usagef("--at and --in are for a message that is sent once: with --every or --cron use --start")
	case s.request.ExecutionTime != "" && s.request.Delay != "":
		return nil, usagef("--at and --in exclude each other: give one of them")
	case s.request.Channel == "":
		return nil, usagef("say where to: --channel, like inbox:test or rabbitmq:orders")
	case !cmd.Flags().Changed("data"):
		return nil, usagef("say what: --data TEXT, --data @FILE, or --data - for standard input")
	}
	for _, h := range s.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, usagef("--header: %q is not of the form NAME=VALUE", h)
		}
		if s.request.Headers == nil {
			s.request.Headers = make(map[string]string)
		}
		s.request.Headers[name] = value
	}
	data, err := readData(s.data, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	return encodeRequest(s.request, data)
}

// readData reads what --data names.
func readData(arg string, stdin io.Reader) ([]byte, error) {
	if arg == "-" {
		return io.ReadAll(stdin)
	}
	if path, ok := strings.CutPrefix(arg, "@"); ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, usagef("--data: %v", err)
		}
		return data, nil
	}
	return []byte(arg), nil
}

// encodeRequest chooses the form of the payload. JSON goes into the request exactly as written:
// an encoder would compact and escape it.
func encodeRequest(r sendRequest, data []byte) ([]byte, error) {
	var payload []byte
	asJSON := r.ContentType == "" && json.Valid(data)
	switch {
	case asJSON || postdate.IsJSON(r.ContentType):
		if !json.Valid(data) {
			return nil, usagef("--content-type is %s, but --data is not JSON", r.ContentType)
		}
		payload = bytes.TrimSpace(data)
	case utf8.Valid(data):
		if r.ContentType == "" {
			r.ContentType = "text/plain; charset=utf-8"
		}
		payload = quote(string(data))
	default:
		if r.ContentType == "" {
			r.ContentType = "application/octet-stream"
		}
		r.PayloadEncoding = "base64"
		payload = quote(base64.StdEncoding.EncodeToString(data))
	}
	rest, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	body := append(rest[:len(rest)-1], `,"payload":`...)
	body = append(body, payload...)
	return append(body, '}'), nil
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // every string can be JSON
	}
	return b
}
