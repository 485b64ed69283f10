package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// verdict says what an answer means for a batch.
type verdict uint8

const (
	confirmed verdict = iota + 1
	again             // send the same batch again, to whoever then leads
	anew              // the broker does not know the identity: try again under another
	smaller           // too large or invalid: try smaller parts; a single record will never succeed
	refused           // not accepted until something is changed
	down              // the partition accepts nothing at present
)

// answer is what a broker said about a batch.
type answer struct {
	verdict  verdict
	appended bool // the records were appended, or may have been
	reason   string
}

// judge interprets a partition's answer. The cases list the errors that a broker gives before
// it appends anything; with any other error, it may have appended.
func judge(said *kmsg.ProduceResponseTopicPartition) answer {
	err := words(said.ErrorCode, said.ErrorMessage)
	if err == nil {
		return answer{verdict: confirmed}
	}
	a := answer{reason: err.Error(), verdict: again, appended: true}
	surely := func(v verdict) answer { a.verdict, a.appended = v, false; return a }
	switch code, _ := errors.AsType[*kerr.Error](err); code {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord:
		return surely(smaller)
	case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		kerr.InvalidTopicException, kerr.PolicyViolation, kerr.UnsupportedForMessageFormat, kerr.InvalidRequiredAcks,
		kerr.InvalidTimestamp, kerr.CorruptMessage:
		return surely(refused)
	case kerr.NotEnoughReplicas:
		return surely(down)
	case kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch,
		kerr.InvalidProducerIDMapping:
		return surely(anew)
	case kerr.LeaderNotAvailable, kerr.ThrottlingQuotaExceeded:
		return surely(again)
	case kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition:
		// This error comes before the append, or while the broker waits for replicas: the
		// offset tells which. Whether the topic exists and who leads, the metadata say, which
		// are asked for before the next try.
		if said.BaseOffset < 0 {
			return surely(again)
		}
	case kerr.NotEnoughReplicasAfterAppend:
		// A second try would be refused for lack of replicas, and prove nothing.
		a.verdict = down
	}
	return a
}

// words returns an error code's name with what the broker says about it, or else with the text
// from Kafka's documentation; nil for no error.
func words(code int16, message *string) error {
	err := kerr.TypedErrorForCode(code)
	if err == nil {
		return nil
	}
	if message == nil || *message == "" || *message == err.Message {
		return err
	}
	return &said{err, *message}
}

// said is an error in the broker's own words.
type said struct {
	code    *kerr.Error
	message string
}

func (s *said) Error() string { return fmt.Sprintf("%s: %s", s.code.Message, s.message) }

func (s *said) Unwrap() error { return s.code }
