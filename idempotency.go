package svc

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/seal"
	"github.com/extsvc/svc/internal/strictjson"
)

// IdempotencyPeriod is the time in which a repeated request with an idempotency key gets the answer
// of the first one.
const IdempotencyPeriod = 24 * time.Hour

// repeatable is a request that may come again. Without an idempotency key it runs each time.
type repeatable struct {
	journal *journal
	key     string // the idempotency key; "" none
	id      []byte // see KeptAnswer.Key
	request []byte
	now     time.Time
}

// repeatable returns a request of a caller. A kind ("install") and the values in request
// distinguish it from other requests.
func (s *journal) repeatable(
	by Principal, key, kind string, request any, now time.Time,
) (repeatable, error) {
	if key == "" {
		return repeatable{}, nil
	}
	if s.roles.answers == nil {
		return repeatable{}, Invalid(idempotencyHeader, "must be absent: this server keeps no answers")
	}
	caller := by.Identity()
	id, err := json.Marshal([]string{string(caller.Kind), caller.ID, key})
	if err != nil {
		return repeatable{}, fault("identify the request", err)
	}
	text, err := json.Marshal([]any{kind, request})
	if err != nil {
		return repeatable{}, fault("identify the request", err)
	}
	return repeatable{
		journal: s,
		key:     key,
		id:      keyring.MAC([]byte("svc idempotency key"), string(id)),
		request: keyring.MAC([]byte("svc request"), string(text)),
		now:     now,
	}, nil
}

// once runs do, unless the request has an answer already: then it returns that answer.
func once[A any](ctx context.Context, r repeatable, do func() (A, error)) (A, error) {
	if r.key == "" {
		return do()
	}
	answer, err := answered[A](ctx, r)
	if !errors.Is(err, ErrNotFound) {
		return answer, err
	}
	done, failed := do()
	if failed == nil {
		return done, nil
	}
	answer, err = answered[A](ctx, r) // another call may have kept an answer meanwhile
	if err == nil || ErrorCode(err) == CodeKeyReused ||
		errors.Is(failed, errAnswered) && !errors.Is(err, ErrNotFound) {
		return answer, err
	}
	return done, failed
}

// answered returns the kept answer to the request. ErrNotFound.
func answered[A any](ctx context.Context, r repeatable) (answer A, err error) {
	kept, err := r.journal.roles.answers.Answer(ctx, r.id, r.now)
	if errors.Is(err, ErrNotFound) {
		return answer, ErrNotFound
	} else if err != nil {
		return answer, fault("read answer", err)
	}
	if !bytes.Equal(kept.Request, r.request) {
		return answer, &Error{
			Code:    CodeKeyReused,
			Field:   idempotencyHeader,
			Message: "another request used this idempotency key: draw another one",
		}
	}
	data, err := r.open(kept.Data)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	return answer, fault("open answer", err)
}

// answer returns what to keep so that the request gets the same answer again. Nil: the request has
// no idempotency key.
func (r repeatable) answer(answer any) (*KeptAnswer, error) {
	if r.key == "" {
		return nil, nil
	}
	data, err := strictjson.Marshal(answer)
	if err != nil {
		return nil, fault("keep answer", err)
	}
	sealer, err := r.sealer(r.journal.answerKeys[0])
	if err != nil {
		return nil, fault("keep answer", err)
	}
	return &KeptAnswer{
		Key:       r.id,
		Request:   r.request,
		Data:      sealer.Seal(data, r.binding()),
		ExpiresAt: r.now.Add(IdempotencyPeriod),
	}, nil
}

// sealer returns a Sealer whose key is derived from the idempotency key and one of the answer keys.
// The store keeps neither, so a reader of the database alone cannot read answers.
func (r repeatable) sealer(answerKey []byte) (*seal.Sealer, error) {
	key, err := hkdf.Key(sha256.New, []byte(r.key), answerKey, "svc answer", seal.KeySize)
	if err != nil {
		return nil, err
	}
	return seal.New(key)
}

func (r repeatable) binding() []byte { return slices.Concat(r.id, r.request) }

// open opens data that was sealed under any of the peppers.
func (r repeatable) open(data []byte) ([]byte, error) {
	for _, key := range r.journal.answerKeys {
		sealer, err := r.sealer(key)
		if err != nil {
			return nil, err
		}
		if opened, err := sealer.Open(data, r.binding()); err == nil {
			return opened, nil
		}
	}
	return nil, seal.ErrOpen
}
