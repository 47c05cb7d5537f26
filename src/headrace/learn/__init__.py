"""Learning from views: models that need the moments of a join, never its rows."""

from headrace.learn.linear import NotConvergedWarning
from headrace.learn.moments import Moments
from headrace.learn.regression import CollinearWarning, LinearRegression

__all__ = ["CollinearWarning", "LinearRegression", "Moments", "NotConvergedWarning"]
