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
// of the first one. It begins with the first request that succeeds, by Config.Now; a repetition
// does not prolong it. After it, the same request runs again. Failures are not kept.
const IdempotencyPeriod = 24 * time.Hour

// repeatable is a request that may come again. Without an idempotency key it runs each time. The
// zero repeatable is such a request.
//
// Two requests take an idempotency key: to issue an API key, and to install a template. A caller
// that repeats one of the others sees in the row whether the first try has succeeded.
//
// It has one time for the whole request. So an answer cannot expire between the look at it and the
// attempt to keep another, and all processes need about the same clock.
type repeatable struct {
	journal *journal
	key     string // the idempotency key; "" none
	id      []byte // see KeptAnswer.Key
	request []byte
	now     time.Time
}

// repeatable returns a request of a caller. A kind ("install") and the values in request
// distinguish it from other requests.
//
// The idempotency key counts for its caller alone, by kind and id: a user may repeat a request with
// another key or session. The two digests have constant keys. So a reader of the database can test
// guesses of an idempotency key, which is best drawn at random. CodeInvalid: the store is no
// [AnswerStore]; to ignore the key would run a repeated request twice.
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
//
// do keeps the answer in the transaction of its change, so both exist or neither. When do fails,
// once looks for an answer again. Of two equal requests at once the slower fails, perhaps because
// the thing exists by now. It must get the answer of the faster. Without an answer, once returns
// the failure of do, and the next request with this idempotency key runs again.
func once[A any](ctx context.Context, r repeatable, do func() (A, error)) (A, error) {
	if r.key == "" {
		return do()
	}
	answer, err := answered[A](ctx, r)
	if !errors.Is(err, ErrNotFound) {
		return answer, err
	}
	// Nothing is locked here: only the write of the answer decides which of two requests is first.
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

// answered returns the kept answer to the request. ErrNotFound. An answer under a pepper that was
// removed meanwhile cannot be opened: that is CodeInternal until the answer expires.
//
// The caller has been authorized now, not only at the first request: an answer may hold a secret.
func answered[A any](ctx context.Context, r repeatable) (answer A, err error) {
	// An answer that has expired is not found, also while its row is still there.
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
// no idempotency key. Each call seals with a new nonce; the store sees nothing of the answer but
// its length. When the change fails, its transaction takes the answer back, and the request can run
// again.
func (r repeatable) answer(answer any) (*KeptAnswer, error) {
	if r.key == "" {
		return nil, nil
	}
	// Strict: encoding/json would replace invalid text, and a repetition would get another answer.
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

// sealer returns a Sealer whose key is derived (HKDF, RFC 5869) from the idempotency key and one of
// the answer keys. The store keeps neither, so a reader of the database alone cannot read answers.
// Without a pepper, answerKey is nil: then an answer is as safe as its idempotency key is hard to
// guess.
func (r repeatable) sealer(answerKey []byte) (*seal.Sealer, error) {
	key, err := hkdf.Key(sha256.New, []byte(r.key), answerKey, "svc answer", seal.KeySize)
	if err != nil {
		return nil, err
	}
	return seal.New(key)
}

// binding ties an answer to its caller and its request: moved to another row, it does not open.
func (r repeatable) binding() []byte { return slices.Concat(r.id, r.request) }

// open opens data that was sealed under any of the peppers. So a change of the first pepper within
// IdempotencyPeriod loses no answer, as long as the old one stays in the list with its Secret.
// Only the right key and binding open it: a wrong pepper fails and cannot return other data.
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
