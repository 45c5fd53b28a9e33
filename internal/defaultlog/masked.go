package defaultlog

import (
	"context"
	"fmt"
	"log/slog"
)

// Masked returns a logger that passes its records to [Or] of logger with all texts masked: the
// errors and panics of a host and of its store may repeat a secret. A panic of the host's handler
// is dropped, because it must neither fail what is logged nor end the process.
func Masked(logger *slog.Logger, mask func(string) string) *slog.Logger {
	return slog.New(maskedHandler{Or(logger).Handler(), mask})
}

type maskedHandler struct {
	to   slog.Handler
	mask func(string) string
}

func (h maskedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

func (h maskedHandler) Handle(ctx context.Context, record slog.Record) error {
	defer func() { _ = recover() }()
	masked := slog.NewRecord(record.Time, record.Level, h.mask(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(h.attr(a))
		return true
	})
	return h.to.Handle(ctx, masked)
}

// attr masks a value that is a text, or is printed as one. All others keep their type.
func (h maskedHandler) attr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindGroup:
		group := a.Value.Group()
		masked := make([]slog.Attr, len(group))
		for i := range group {
			masked[i] = h.attr(group[i])
		}
		a.Value = slog.GroupValue(masked...)
	case slog.KindString, slog.KindAny:
		text := fmt.Sprint(a.Value.Any())
		if masked := h.mask(text); masked != text {
			a.Value = slog.StringValue(masked)
		}
	}
	return a
}

func (h maskedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	masked := make([]slog.Attr, len(attrs))
	for i := range attrs {
		masked[i] = h.attr(attrs[i])
	}
	return maskedHandler{h.to.WithAttrs(masked), h.mask}
}

func (h maskedHandler) WithGroup(name string) slog.Handler {
	return maskedHandler{h.to.WithGroup(name), h.mask}
}
