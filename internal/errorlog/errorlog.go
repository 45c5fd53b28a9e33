// Package errorlog is the logger of a host that gives none: errors are not lost in silence.
package errorlog

import (
	"context"
	"log/slog"
)

// Or returns logger. For nil it returns one that hands records of [slog.LevelError] and above to
// [slog.Default], as it is at that time, and drops all others.
func Or(logger *slog.Logger) *slog.Logger {
	if logger != nil {
		return logger
	}
	return slog.New(handler{func(to slog.Handler) slog.Handler { return to }})
}

// handler knows what was added to its logger, and adds that to the default one.
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
