package main

import (
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
)

func withEcho(api *httpapi.Handler) http.Handler {
	e := echo.NewWithConfig(echo.Config{Logger: slog.Default()})
	e.Use(middleware.RequestLogger(), middleware.Recover(),
		echo.WrapMiddleware(counted), echo.WrapMiddleware(api.Mount))
	e.GET("/", echo.WrapHandler(http.HandlerFunc(home)))
	page := echo.WrapHandler(http.HandlerFunc(whoami))
	e.GET("/whoami", page, echo.WrapMiddleware(api.Protect))
	return e
}

// recall is a route of the host, behind Protect. A denial must be an error: nil would answer 200.
func recall(service *svc.Service) echo.HandlerFunc {
	return func(c *echo.Context) error {
		who, _ := httpapi.PrincipalFrom(c.Request().Context())
		bank := c.Param("bank")
		d, err := service.Decide(c.Request().Context(), who, "bank:recall", bank, svc.Context{})
		if err != nil { // never an allow
			return echo.ErrServiceUnavailable
		}
		if !d.Allowed() {
			return echo.ErrForbidden
		}
		return c.String(http.StatusOK, "recalls")
	}
}
