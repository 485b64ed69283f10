package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// verdict is what an answer means for a batch.
type verdict uint8

const (
	confirmed verdict = iota + 1
	again             // try the same batch again, at the leader of that time
	anew              // the broker does not know the identity: try under another one
	smaller           // too large or invalid: try its parts; a single record never will do
	refused           // not while things are as they are
	down              // the partition takes nothing at present
)

// answer is what a broker said about a batch.
type answer struct {
	verdict  verdict
	appended bool // or it may be
	reason   string
}

// judge reads a partition's answer. The list names the errors that a broker gives
// before it appends anything; whatever else it says, it may have appended.
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
	case kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping:
		return surely(anew)
	case kerr.LeaderNotAvailable, kerr.ThrottlingQuotaExceeded:
		return surely(again)
	case kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition:
		// Before the append, or while it was waited for replicas: the offset tells.
		// Who leads, and whether there is such a topic, is for the metadata to say,
		// which are asked for before the next try.
		if said.BaseOffset < 0 {
			return surely(again)
		}
	case kerr.NotEnoughReplicasAfterAppend:
		// A second try would be refused for want of replicas, and tell nothing.
		a.verdict = down
	}
	return a
}

// words are an error code's name with what the broker says about it, or what Kafka's
// documentation does; nil for no error.
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
