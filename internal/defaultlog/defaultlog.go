// Package defaultlog provides the logger for a host that configures none, so that no error is lost.
package defaultlog

import (
	"context"
	"log/slog"
)

// Or returns logger. For nil it returns a logger that passes records of [slog.LevelError] and above
// to the current [slog.Default], and drops all others.
func Or(logger *slog.Logger) *slog.Logger {
	if logger != nil {
		return logger
	}
	return slog.New(handler{func(to slog.Handler) slog.Handler { return to }})
}

// handler keeps the attributes and groups of its logger, and adds them to the default handler.
type handler struct {
	add func(to slog.Handler) slog.Handler
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && slog.Default().Handler().Enabled(ctx, level)
}

func (h handler) Handle(ctx context.Context, record slog.Record) error {
	return h.add(slog.Default().Handler()).Handle(ctx, record)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{func(to slog.Handler) slog.Handler { return h.add(to).WithAttrs(attrs) }}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{func(to slog.Handler) slog.Handler { return h.add(to).WithGroup(name) }}
}
