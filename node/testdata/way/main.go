// Command way runs a node, sends messages through it, one at a time, and writes for each part
// of their way which code was entered. It must be built with -cover. TestTheWay builds and runs
// it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/node"
)

const rounds = 6

func main() {
	broker := flag.String("rabbitmq", "", "the broker's URL")
	out := flag.String("out", "", "the folder to write to: PART/ROUND")
	flag.Parse()
	if err := run(*broker, *out); err != nil {
		log.Fatal(err)
	}
}

func run(broker, out string) error {
	arrivals, queue, err := consume(broker)
	if err != nil {
		return err
	}
	c := node.DefaultConfig()
	c.HTTP, c.Store, c.RabbitMQ = "127.0.0.1:0", "pebble:"+filepath.Join(out, "store"), broker
	c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	n, err := node.Start(context.Background(), c)
	if err != nil {
		return err
	}
	w := &walk{out: out, url: "http://" + n.Addr() + "/v1/messages", queue: queue, arrivals: arrivals}
	for w.round = range rounds {
		if err := w.walk(); err != nil {
			return errors.Join(err, n.Stop(context.Background()))
		}
	}
	return n.Stop(context.Background())
}

func consume(broker string) (arrivals <-chan amqp.Delivery, queue string, err error) {
	conn, err := amqp.Dial(broker)
	if err != nil {
		return nil, "", err
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, "", err
	}
	q, err := channel.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		return nil, "", err
	}
	arrivals, err = channel.Consume(q.Name, "", true, true, false, false, nil)
	return arrivals, q.Name, err
}

type walk struct {
	out, url, queue string
	arrivals        <-chan amqp.Delivery
	round           int
}

// walk sends one message through, and cancels another.
func (w *walk) walk() error {
	sent, cancelled := fmt.Sprint("sent-", w.round), fmt.Sprint("cancelled-", w.round)
	return errors.Join(
		w.part("schedule", func() error { return w.schedule(sent, "200ms") }),
		w.part("deliver", func() error {
			<-w.arrivals
			return w.await(sent, "DELIVERED")
		}),
		w.schedule(cancelled, "1h"),
		w.part("cancel", func() error { _, err := w.call("DELETE", "/"+cancelled, ""); return err }),
		w.part("idle", func() error { // with the same requests, and once for as long as a node takes to look at all
			idle := 200 * time.Millisecond
			if w.round == rounds-1 {
				idle = 3 * time.Second
			}
			over := time.After(idle)
			for {
				select {
				case <-over:
					return nil
				default:
					if err := w.await(sent, "DELIVERED"); err != nil {
						return err
					}
				}
			}
		}),
	)
}

// part runs one part of the way, and writes what was entered during it.
func (w *walk) part(name string, f func() error) error {
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	err := f()
	folder := filepath.Join(w.out, name, fmt.Sprint(w.round))
	return errors.Join(err, os.MkdirAll(folder, 0o700), coverage.WriteMetaDir(folder),
		coverage.WriteCountersDir(folder))
}

func (w *walk) schedule(id, delay string) error {
	_, err := w.call("POST", "", fmt.Sprintf(`{"scheduleId":%q,"channel":"rabbitmq:%s","delay":%q,"payload":{"a":1}}`,
		id, w.queue, delay))
	return err
}

// await polls until the message has the status.
func (w *walk) await(id, status string) error {
	for {
		answer, err := w.call("GET", "/"+id, "")
		if err != nil || strings.Contains(answer, `"status":"`+status+`"`) {
			return err
		}
	}
}

func (w *walk) call(method, path, body string) (string, error) {
	r, err := http.NewRequest(method, w.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s", method, path, text)
	}
	return string(text), err
}
