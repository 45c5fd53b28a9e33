package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// lanes is how many mutations commit side by side in a database with many writers.
const lanes = 32

// The generation is the sum of the lanes' values. A mutation adds one to one lane, and keeps that
// lane locked until its commit. Snapshots of a database are ordered: of two, one holds all commits
// of the other. So equal sums are equal states, and a greater sum is a later state.
const (
	// Without rows, the sum is null.
	sumGeneration    = `SELECT CAST(SUM(value) AS BIGINT) AS value FROM svc_generation`
	selectGeneration = sumGeneration + ` HAVING COUNT(*) > 0`
)

// lanes returns how many lanes the generation has.
func (d Dialect) lanes() int {
	if d.OneWriter {
		return 1
	}
	return lanes
}

// The statements that raise the generation and insert what a mutation changed. Without a row of
// svc_generation they fail. The one for many lanes takes a lane that nobody has locked, and waits
// only when all are. A connection begins at its own lane; a transaction that has a lane already
// always finds one.
const (
	raiseOnly = `UPDATE svc_generation SET value = value + 1 WHERE id = 1`
	feedOnly  = `INSERT INTO svc_changefeed (lane, number, changed)
		VALUES (1, (SELECT value FROM svc_generation WHERE id = 1), $1)`
)

// The lane is chosen in its own row: PostgreSQL evaluates a subquery of WHERE again when the row to
// update has changed since the start of the statement.
var feedAny = fmt.Sprintf(`WITH unlocked AS MATERIALIZED (
		SELECT id FROM svc_generation ORDER BY (id + pg_backend_pid()) %% %[1]d LIMIT 1
		FOR UPDATE SKIP LOCKED),
	chosen AS MATERIALIZED (SELECT id FROM unlocked
		UNION ALL SELECT 1 + pg_backend_pid() %% %[1]d WHERE NOT EXISTS (SELECT FROM unlocked)),
	lane AS (UPDATE svc_generation g SET value = g.value + 1 FROM chosen WHERE g.id = chosen.id
		RETURNING g.id, g.value)
	INSERT INTO svc_changefeed (lane, number, changed)
	VALUES ((SELECT id FROM lane), (SELECT value FROM lane), $1)`, lanes)

// feed adds a mutation to the changes, and one to the generation. For a tenant it also says which
// one has moved, in the same lane, as its mutations must not wait for each other there.
func (s session) feed(ctx context.Context, dialect Dialect, m mutation) error {
	text, err := json.Marshal(m)
	changed, statement := string(text), feedAny
	switch t := dialect.Tenant; {
	case err != nil:
		return err
	case dialect.OneWriter:
		if err := s.later(ctx, nil, raiseOnly); err != nil {
			return err
		}
		statement = feedOnly
	case t != nil:
		insert := `, moved AS (` + t.move("lane") + `) INSERT`
		statement = strings.Replace(statement, "\n\tINSERT", insert, 1)
	}
	if isLong(changed) {
		ctx = withoutHurry(ctx) // thousands of rows have changed
	}
	return s.later(ctx, nil, statement, changed)
}

// move returns a statement that says that a tenant has moved in the lanes with an id in a table.
func (t *TenantDialect) move(from string) string {
	return fmt.Sprintf(`INSERT INTO %ssvc_tenant_lanes AS m (number, lane, moves)
		SELECT %d, id, 1 FROM %s ON CONFLICT (number, lane) DO UPDATE SET moves = m.moves + 1`,
		quoted(t.Control), t.Number, from)
}

// laneChanges are the changes f of the lane g behind the state $1. The lane finds its own by the
// index. OFFSET keeps PostgreSQL from reading all changes of all lanes instead: of a parameter it
// expects that a third of them are behind it.
const laneChanges = `(SELECT seq, changed FROM svc_changefeed WHERE lane = g.id
			AND number > COALESCE((CAST(CAST($1 AS TEXT) AS BIGINT[]))[g.id], 0) OFFSET 0) f`

// behind returns the join of the lanes g with their changes f behind a state, and its parameter.
func (d Dialect) behind(s state) (join string, parameter any) {
	if d.OneWriter {
		return `LEFT JOIN svc_changefeed f ON f.lane = g.id AND f.number > $1`, s.generation
	}
	numbers := make([]string, len(s.lanes))
	for i, value := range s.lanes {
		numbers[i] = strconv.FormatInt(value, 10)
	}
	return `LEFT JOIN LATERAL ` + laneChanges + ` ON TRUE`, "{" + strings.Join(numbers, ",") + "}"
}

// state is one of a database: its generation, and the values of its lanes by their ids from 1 on.
// Lanes beyond them are 0.
type state struct {
	generation int64
	lanes      []int64
}

// set sets the value of a lane.
func (s *state) set(id, value int64) {
	for int64(len(s.lanes)) < id {
		s.lanes = append(s.lanes, 0)
	}
	s.generation += value - s.lanes[id-1]
	s.lanes[id-1] = value
}

// has reports whether s has all that an earlier state has.
func (s state) has(earlier state) bool {
	for i, value := range earlier.lanes {
		if i >= len(s.lanes) || s.lanes[i] < value {
			return false
		}
	}
	return true
}

// states remembers states that a Store has answered with, by their generations. Its zero value is
// ready to use.
type states struct {
	mu   sync.Mutex
	list []state
}

// statesMost is the most states of a list. Then each second one goes: an answer from an earlier one
// only repeats some changes.
const statesMost = 128

// before returns the latest known state that has nothing which the state of a generation lacks.
// That of the generation 0 is always known.
func (s *states) before(generation int64) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch at, found := s.find(generation); {
	case found:
		return s.list[at]
	case at > 0:
		return s.list[at-1]
	}
	return state{}
}

func (s *states) find(generation int64) (at int, found bool) {
	return slices.BinarySearchFunc(s.list, generation, func(s state, generation int64) int {
		return cmp.Compare(s.generation, generation)
	})
}

// add remembers a state that was read after an earlier one was known. false: the state lacks some
// of it, as the database has gone back, and all others are forgotten.
func (s *states) add(now, earlier state) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.has(earlier) {
		s.list = []state{now}
		return false
	}
	at, found := s.find(now.generation)
	if found { // it is this state
		return true
	}
	if s.list = slices.Insert(s.list, at, now); len(s.list) > statesMost {
		odd := false
		s.list = slices.DeleteFunc(s.list, func(state) bool { odd = !odd; return !odd })
	}
	return true
}
