"""Operations: views, administration, dead letters, metrics and log events for operators."""
