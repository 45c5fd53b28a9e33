package main

import (
	"log/slog"
	"net/http"

	"github.com/extsvc/svc/httpapi"
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
)

func withEcho(api *httpapi.Handler) http.Handler {
	e := echo.NewWithConfig(echo.Config{Logger: slog.Default()})
	e.Use(middleware.RequestLogger(), middleware.Recover(), echo.WrapMiddleware(counted), echo.WrapMiddleware(api.Ahead))
	e.GET("/", echo.WrapHandler(http.HandlerFunc(home)))
	e.GET("/whoami", echo.WrapHandler(http.HandlerFunc(whoami)), echo.WrapMiddleware(api.Protect))
	return e
}
