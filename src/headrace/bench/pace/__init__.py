"""Views with goals: how paces are chosen, whether the goals are met, and what that costs in CPU and in rows."""
