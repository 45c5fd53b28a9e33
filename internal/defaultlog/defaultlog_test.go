package defaultlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/defaultlog"
)

func TestOr(t *testing.T) {
	is := is.New(t)
	defer slog.SetDefault(slog.Default())
	own := slog.New(slog.DiscardHandler)
	is.Equal(defaultlog.Or(own), own)

	logger := defaultlog.Or(nil).With("a", 1).WithGroup("g").With("b", 2)
	var log bytes.Buffer
	become := func(level slog.Level) { // after the logger was made
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level, ReplaceAttr: untimed})))
	}
	become(slog.LevelDebug)
	logger.Debug("no")
	logger.Warn("no")
	logger.Error("yes", "c", 3)
	is.Equal(log.String(), "level=ERROR msg=yes a=1 g.b=2 g.c=3\n")
	log.Reset()
	become(slog.LevelError + 1)
	logger.Error("no")
	is.Equal(log.String(), "")
}

func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func TestMasked(t *testing.T) {
	var log bytes.Buffer
	own := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: untimed}))
	logger := defaultlog.Masked(own, func(s string) string { return strings.ReplaceAll(s, "key", "***") })
	logger.Debug("no")
	logger.With("a", "a key", "b", 1).WithGroup("g").Warn("the key", "error", fmt.Errorf("x: %w", errors.New("key")),
		slog.Group("h", "c", []string{"key"}), "panic", any(struct{ A string }{"key"}), "plain", errors.New("x"), "n", 7)
	is.New(t).Equal(log.String(), `level=WARN msg="the ***" a="a ***" b=1 g.error="x: ***" g.h.c=[***] g.panic={***} g.plain=x g.n=7`+"\n")
}

// broken is a handler of the host that panics.
type broken struct{ slog.Handler }

func (broken) Enabled(context.Context, slog.Level) bool { return true }

func (broken) Handle(context.Context, slog.Record) error { panic("planted") }

func TestMaskedOutlivesItsHandler(t *testing.T) {
	defaultlog.Masked(slog.New(broken{}), strings.ToUpper).Error("x")
}
