package defaultlog_test

import (
	"bytes"
	"log/slog"
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
